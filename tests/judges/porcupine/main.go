// Judge reads a history of operations, one JSON object a line, and says whether it is linearizable. The answer is
// porcupine's; what streamlog promises is in models.go.
//
//	judge [-late 0s] [-timeout 60s] [-html folder] history.jsonl
//
// Exit code 0: linearizable. 1: an operation cannot be placed, which a line names; porcupine's picture of each such
// object is in the folder. 2: not a history. 3: undecided within the time.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	violated   = 1
	notHistory = 2
	undecided  = 3
)

var unsafeInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

func main() {
	timeout := flag.Duration("timeout", time.Minute, "for each object that has no simple answer")
	late := flag.Duration("late", 0, "reads may tell what was so that long before")
	folder := flag.String("html", ".", "where the pictures of violations are written")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: judge [-late 0s] [-timeout 60s] [-html folder] history.jsonl")
		os.Exit(notHistory)
	}
	os.Exit(run(flag.Arg(0), *late, *timeout, *folder))
}

func run(path string, late, timeout time.Duration, folder string) int {
	file, err := os.Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return notHistory
	}
	defer file.Close()
	objects, err := readHistory(file)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
		return notHistory
	}
	names := make([]string, 0, len(objects))
	for name := range objects {
		names = append(names, name)
	}
	sort.Strings(names)

	worst, lateReads := 0, 0
	for _, name := range suspects(objects, names, timeout) {
		result, found := judge(name, objects[name], late, timeout, folder)
		lateReads += found
		if result == violated || worst == 0 {
			worst = result
		}
	}
	if worst == 0 {
		fmt.Print(summary(objects, names))
		if lateReads > 0 {
			fmt.Printf("; %d reads were late", lateReads)
		}
		fmt.Println()
	}
	return worst
}

// suspects are the objects that are not linearizable as long as what no client ever saw has not happened. It may have
// happened after all else, so the others need no second look.
func suspects(objects map[string][]*Operation, names []string, timeout time.Duration) []string {
	byModel := map[string][]string{}
	for _, name := range names {
		model := objects[name][0].Model
		byModel[model] = append(byModel[model], name)
	}
	var found []string
	for model, names := range byModel {
		var all []porcupine.Operation
		for _, name := range names {
			all = append(all, operations(objects[name], false)...)
		}
		if porcupine.CheckOperationsTimeout(models[model].porcupine(), all, timeout) == porcupine.Ok {
			continue
		}
		for _, name := range names {
			known := operations(objects[name], false)
			if porcupine.CheckOperationsTimeout(models[model].porcupine(), known, timeout) != porcupine.Ok {
				found = append(found, name)
			}
		}
	}
	sort.Strings(found)
	return found
}

// judge looks at one object, and says how many reads were late. Each that cannot be placed otherwise may be; only if
// that is not enough may all of them be, for that makes many operations concurrent, and the search long.
func judge(name string, history []*Operation, late, timeout time.Duration, folder string) (int, int) {
	model := models[history[0].Model].porcupine()
	for lateReads := 0; ; lateReads++ {
		result, info := porcupine.CheckOperationsVerbose(model, operations(history, true), timeout)
		if result == porcupine.Ok {
			return 0, lateReads
		}
		first, placed := unplaced(info, history)
		if late > 0 && first.mayBeLate() && first.began == first.Call {
			first.began -= late.Nanoseconds()
			continue
		}
		if late > 0 {
			for _, it := range history {
				if it.mayBeLate() {
					it.began = it.Call - late.Nanoseconds()
				}
			}
			result, info = porcupine.CheckOperationsVerbose(model, operations(history, true), timeout)
			first, placed = unplaced(info, history)
		}
		switch result {
		case porcupine.Ok:
			return 0, lateReads
		case porcupine.Unknown:
			fmt.Printf("undecided: %s: no answer within %s\n", name, timeout)
			return undecided, 0
		}
		fmt.Printf("violation: %s: %s cannot be placed; %s\n", name, first, placed)
		picture := filepath.Join(folder, unsafeInNames.ReplaceAllString(name, "-")+".html")
		if err := porcupine.VisualizePath(model, info, picture); err != nil {
			fmt.Fprintln(os.Stderr, err)
		} else {
			fmt.Printf("picture: %s\n", picture)
		}
		return violated, 0
	}
}

// operations are those of one object for porcupine; the open ones only if they are wanted.
func operations(history []*Operation, open bool) []porcupine.Operation {
	var found []porcupine.Operation
	for _, it := range history {
		if !it.open || open && !it.late {
			found = append(found, porcupine.Operation{ClientId: it.Client, Input: it, Call: it.began, Return: it.end})
		}
	}
	return found
}

// unplaced is the operation that returned first among those which the longest order of operations does without, and
// what that order is like.
func unplaced(info porcupine.LinearizationInfo, history []*Operation) (*Operation, string) {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	inOrder := map[*Operation]bool{}
	for _, it := range longest {
		inOrder[it.Input.(*Operation)] = true
	}
	var first *Operation
	for _, it := range history {
		if !inOrder[it] && (first == nil || it.end < first.end) {
			first = it
		}
	}
	if len(longest) == 0 {
		return first, "no other can"
	}
	last := longest[len(longest)-1].Input.(*Operation)
	return first, fmt.Sprintf("%d of %d operations can, the last %s", len(longest), len(history), last)
}

func summary(objects map[string][]*Operation, names []string) string {
	counts, objectsOf := map[string]int{}, map[string]int{}
	for _, name := range names {
		model := objects[name][0].Model
		for _, it := range objects[name] {
			if it.Kind != "gone" {
				counts[model]++
			}
		}
		objectsOf[model]++
	}
	text := "linearizable:"
	for _, model := range []string{"log", "expected", "bucket", "commits"} {
		if counts[model] > 0 {
			text += fmt.Sprintf(" %s %d operations of %d objects,", model, counts[model], objectsOf[model])
		}
	}
	return text[:len(text)-1]
}
