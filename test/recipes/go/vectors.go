package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "|")
		var secrets []string
		for _, secret := range strings.Split(fields[4], ":")[1:] {
			secrets = append(secrets, string(decoded(secret)))
		}
		right, err := VerifyWebhook(decoded(fields[1]), string(decoded(fields[0])), secrets, whole(fields[3]), whole(fields[2]))
		switch {
		case err != nil:
			fmt.Println("error")
		case right && ChallengeAnswer(decoded(fields[1])) != "":
			fmt.Println("answer " + ChallengeAnswer(decoded(fields[1])))
		case right:
			fmt.Println("accept")
		default:
			fmt.Println("reject")
		}
	}
}

func decoded(text string) []byte {
	bytes, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return bytes
}

func whole(text string) int64 {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return number
}
