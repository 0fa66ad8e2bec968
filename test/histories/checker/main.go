// Judges histories with Porcupine, by the models beside this file.
//
// A line of input is a history as test/histories/checker.ts writes it. A line of output is one that is refused; the
// last one says how many were judged. With -pictures FOLDER, each refused history is drawn there as a page.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history that takes longer is not decided, and that is no acceptance.
const judgedWithin = 30 * time.Second

type call struct {
	Do    string `json:"do"`
	Value string `json:"value"`
	At    int    `json:"at"`
}

type answer struct {
	Is        string   `json:"is"`
	Value     string   `json:"value"`
	At        int      `json:"at"`
	Version   int      `json:"version"`
	Published string   `json:"published"`
	Replayed  bool     `json:"replayed"`
	IsEnd     bool     `json:"isEnd"`
	Items     []string `json:"items"`
}

type operation struct {
	Client int   `json:"client"`
	Call   int64 `json:"call"`
	Return int64 `json:"return"`
	In     call  `json:"in"`
	// Null: nobody knows whether it took place, or when it will.
	Out *answer `json:"out"`
}

type history struct {
	Model      string      `json:"model"`
	Name       string      `json:"name"`
	Operations []operation `json:"operations"`
}

type refusal struct {
	Name    string `json:"name"`
	Model   string `json:"model"`
	Verdict string `json:"verdict"`
	History any    `json:"history"`
}

func main() {
	pictures := flag.String("pictures", "", "a folder for pages of refused histories")
	flag.Parse()
	lines := make(chan []byte, 16)
	out := json.NewEncoder(os.Stdout)
	var lock sync.Mutex
	var workers sync.WaitGroup
	judged := 0
	for n := 0; n < runtime.NumCPU(); n++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for line := range lines {
				refused, err := judge(line, *pictures)
				lock.Lock()
				if err != nil {
					fail(err)
				}
				judged++
				if refused != nil {
					fail(out.Encode(refused))
				}
				lock.Unlock()
			}
		}()
	}
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<26)
	for input.Scan() {
		lines <- append([]byte(nil), input.Bytes()...)
	}
	fail(input.Err())
	close(lines)
	workers.Wait()
	fail(out.Encode(map[string]int{"judged": judged}))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// Nil: it is accepted.
func judge(line []byte, pictures string) (*refusal, error) {
	var told history
	if err := json.Unmarshal(line, &told); err != nil {
		return nil, err
	}
	model, ok := models[told.Model]
	if !ok {
		return nil, fmt.Errorf("there is no model %q", told.Model)
	}
	if model.prepare != nil {
		told.Operations = model.prepare(told.Operations)
	}
	checked := porcupine.Model{
		Init:              func() any { return model.first },
		Step:              func(state, in, out any) (bool, any) { return model.step(state, in.(call), out.(*answer)) },
		DescribeOperation: describe,
	}
	operations := make([]porcupine.Operation, len(told.Operations))
	for n, one := range told.Operations {
		ends := one.Return
		if one.Out == nil {
			ends = math.MaxInt64
		}
		operations[n] = porcupine.Operation{
			ClientId: one.Client, Input: one.In, Call: one.Call, Output: one.Out, Return: ends,
		}
	}
	verdict := porcupine.CheckOperationsTimeout(checked, operations, judgedWithin)
	if verdict == porcupine.Ok {
		return nil, nil
	}
	if pictures != "" {
		if err := draw(checked, operations, filepath.Join(pictures, told.Name+".html")); err != nil {
			return nil, err
		}
	}
	return &refusal{told.Name, told.Model, string(verdict), json.RawMessage(line)}, nil
}

// Times on the page begin at the first call, and what was never answered ends with the last.
func draw(model porcupine.Model, operations []porcupine.Operation, path string) error {
	_, info := porcupine.CheckOperationsVerbose(model, operations, judgedWithin)
	return porcupine.VisualizePath(model, info, path)
}

func describe(in, out any) string {
	asked, told := in.(call), out.(*answer)
	text := fmt.Sprintf("%s %s %d", asked.Do, asked.Value, asked.At)
	if told == nil {
		return text + " -> unknown"
	}
	said, _ := json.Marshal(told)
	return text + " -> " + string(said)
}
