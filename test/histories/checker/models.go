package main

import (
	"math"
	"reflect"
	"sort"
)

type model struct {
	first any
	// A state is a value that == compares. out nil: it may have taken place; where it cannot, or changed nothing, the
	// state stays. One that never did is set at the end, where nobody sees what it would have changed.
	step func(state any, in call, out *answer) (bool, any)
	// What is known only of the whole history.
	prepare func([]operation) []operation
}

var models = map[string]model{
	"idempotency": {first: kept{}, step: idempotency},
	"analysis":    {first: stored{}, step: analysis, prepare: looking("read")},
	"pause":       {first: paused{}, step: pause, prepare: sent},
	"feed":        {first: feedState{}, step: feed, prepare: placed},
	"cell":        {first: "source", step: cell, prepare: looking("write")},
	"draft":       {first: draftState{}, step: draft, prepare: looking("get")},
}

// Of operations that only look, those from which nothing is learnt: without an answer; or with the same as another that
// took place while they lasted, beside which they have a place, too. There would be very many orders of them.
func looking(names ...string) func([]operation) []operation {
	return func(all []operation) []operation {
		left := []operation{}
		for n, one := range all {
			if !contains(names, one.In.Do) || (one.Out != nil && !isImplied(all, n)) {
				left = append(left, one)
			}
		}
		return left
	}
}

func isImplied(all []operation, n int) bool {
	one := all[n]
	for m, other := range all {
		isWithin := other.Call >= one.Call && other.Return <= one.Return
		isShorter := other.Call > one.Call || other.Return < one.Return || m < n
		isAlike := other.Out != nil && other.In == one.In && reflect.DeepEqual(other.Out, one.Out)
		if m != n && isWithin && isShorter && isAlike {
			return true
		}
	}
	return false
}

func contains(names []string, wanted string) bool {
	for _, name := range names {
		if name == wanted {
			return true
		}
	}
	return false
}

// What is kept under an Idempotency-Key: the request, and its answer as far as it is known.
type kept struct {
	isTaken      bool
	body, answer string
}

// The first request takes the key. Whoever sends it again gets its answer, and is told that it is a repeat; any other
// request is refused.
func idempotency(state any, in call, out *answer) (bool, any) {
	now := state.(kept)
	switch {
	case out == nil && now.isTaken:
		return true, now
	case out == nil:
		return true, kept{true, in.Value, ""}
	case out.Is == "reused":
		return now.isTaken && now.body != in.Value, now
	case !now.isTaken:
		return !out.Replayed, kept{true, in.Value, out.Value}
	default:
		isSame := now.body == in.Value && (now.answer == "" || now.answer == out.Value)
		return isSame && out.Replayed, kept{true, now.body, out.Value}
	}
}

// An analysis: its text, and its delivery as far as it is known.
type stored struct{ text, delivery string }

// The first text that is published under an id is the analysis. The same again is the same delivery, another one is
// refused, and whoever reads finds what there is.
func analysis(state any, in call, out *answer) (bool, any) {
	now := state.(stored)
	if in.Do == "read" {
		return out.Value == now.text, now
	}
	switch {
	case out == nil && now.text != "":
		return true, now
	case out == nil:
		return true, stored{in.Value, ""}
	case out.Is == "conflict":
		return now.text != "" && now.text != in.Value, now
	case now.text == "":
		return true, stored{in.Value, out.Value}
	default:
		isSame := now.text == in.Value && (now.delivery == "" || now.delivery == out.Value)
		return isSame, stored{now.text, out.Value}
	}
}

// Since when an endpoint is paused; "": it is not known. `sends`: how many there were.
type paused struct {
	isPaused bool
	since    string
	sends    int
}

// A pause says since when, and pausing again changes nothing. While it lasts nothing is sent.
func pause(state any, in call, out *answer) (bool, any) {
	now := state.(paused)
	isKnown := now.since != ""
	switch in.Do {
	case "send":
		return !now.isPaused && in.At == now.sends, paused{false, "", now.sends + 1}
	case "resume":
		return out == nil || out.Value == "", paused{false, "", now.sends}
	case "pause":
		switch {
		case out == nil && now.isPaused:
			return true, now
		case out == nil:
			return true, paused{true, "", now.sends}
		default:
			return out.Value != "" && (!isKnown || now.since == out.Value), paused{true, out.Value, now.sends}
		}
	default:
		if !now.isPaused || out.Value == "" {
			return !now.isPaused && out.Value == "", now
		}
		return !isKnown || now.since == out.Value, paused{true, out.Value, now.sends}
	}
}

// Sends are alike, and none that is left lasts while another does: they take place in the order in which they ended, or
// might as well. On a slow machine there were too many orders of them.
func sent(all []operation) []operation {
	left := looking("read", "send")(all)
	sort.SliceStable(left, func(n, m int) bool { return left[n].Return < left[m].Return })
	sends := 0
	for n := range left {
		if left[n].In.Do == "send" {
			left[n].In.At = sends
			sends++
		}
	}
	return left
}

// How many events the feed has. Which one is at which place is known of the whole history: see placed.
type feedState struct{ length int }

// Events are appended, each once, and stay where they are. A page has those behind the ones that its reader has seen;
// one that is not full ends where the feed does.
func feed(state any, in call, out *answer) (bool, any) {
	now := state.(feedState)
	if in.Do == "publish" {
		return in.At == now.length, feedState{now.length + 1}
	}
	if out.Is != "done" {
		return false, now
	}
	seen := in.At + len(out.Items)
	return seen <= now.length && (!out.IsEnd || seen == now.length), now
}

// A published event comes to the feed when it likes, but it comes: to the place at which readers have found it. A page
// on which readers do not agree, or with an event that nobody published, is one that cannot be.
func placed(all []operation) []operation {
	places := map[string]int{}
	list := map[int]string{}
	for _, one := range all {
		if one.In.Do != "read" || one.Out == nil {
			continue
		}
		for n, item := range one.Out.Items {
			if _, isThere := list[one.In.At+n]; isThere {
				continue
			}
			list[one.In.At+n] = item
			if _, isThere := places[item]; !isThere {
				places[item] = one.In.At + n
			}
		}
	}
	left := []operation{}
	for _, one := range all {
		if one.In.Do == "read" {
			if one.Out == nil {
				continue
			}
			for n, item := range one.Out.Items {
				if at, isThere := places[item]; !isThere || at != one.In.At+n {
					one.Out = &answer{Is: "impossible"}
					break
				}
			}
			left = append(left, one)
			continue
		}
		at, isThere := places[one.In.Value]
		isKnown := one.Out != nil
		switch {
		case isThere:
			one.In.At, one.Return = at, math.MaxInt64
		case isKnown:
			// It was acknowledged, and never came.
			one.In.At = -1
		default:
			continue
		}
		left = append(left, one)
	}
	return left
}

// An account is open in one cell, or, while it moves, in none: then it is closed here and opened there, or opened here
// again. A move that goes on may find both done.
func cell(state any, in call, out *answer) (bool, any) {
	now := state.(string)
	isKnown := out != nil
	switch in.Do {
	case "write":
		return (out.Is == "done") == (now == in.Value), now
	case "close":
		if now == "source" {
			return true, "none"
		}
		return true, now
	case "open":
		if now == "none" {
			return true, "target"
		}
		return now == "target" || !isKnown, now
	default:
		if isKnown && out.Is == "refused" {
			return now == "target", now
		}
		if now == "none" {
			return true, "source"
		}
		return now == "source" || !isKnown, now
	}
}

// A draft and the version that was made of it last.
type draftState struct {
	revision  int
	text      string
	version   int
	published string
}

// Who saves or publishes names the revision that he has seen, and is refused if it is not the draft's any more.
func draft(state any, in call, out *answer) (bool, any) {
	now := state.(draftState)
	told := draftState{}
	if out != nil {
		told = draftState{out.At, out.Value, out.Version, out.Published}
	}
	next := now
	switch in.Do {
	case "create":
		return now == draftState{}, told
	case "get":
		return told == now, now
	case "save":
		next.revision, next.text = now.revision+1, in.Value
	case "publish":
		if out != nil && out.Is == "same" {
			return in.At == now.revision && now.text == now.published, now
		}
		next.version, next.published = now.version+1, now.text
	}
	isRight := in.At == now.revision && (in.Do == "save" || now.text != now.published)
	switch {
	case out == nil && isRight:
		return true, next
	case out == nil:
		return true, now
	case out.Is == "outdated":
		return in.At != now.revision, now
	default:
		return isRight && told == next, next
	}
}
