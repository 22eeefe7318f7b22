// Judge reads a history of operations, one JSON object a line, and says whether it is linearizable. The answer is
// porcupine's; what streamlog promises is in models.go.
//
//	judge [-timeout 60s] [-html folder] history.jsonl
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
	folder := flag.String("html", ".", "where the pictures of violations are written")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: judge [-timeout 60s] [-html folder] history.jsonl")
		os.Exit(notHistory)
	}
	os.Exit(run(flag.Arg(0), *timeout, *folder))
}

func run(path string, timeout time.Duration, folder string) int {
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

	worst := 0
	for _, name := range suspects(objects, names, timeout) {
		switch result := judge(name, objects[name], timeout, folder); {
		case result == violated, result == undecided && worst == 0:
			worst = result
		}
	}
	if worst == 0 {
		fmt.Println(summary(objects, names))
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

func judge(name string, history []*Operation, timeout time.Duration, folder string) int {
	model := models[history[0].Model].porcupine()
	all := operations(history, true)
	result, info := porcupine.CheckOperationsVerbose(model, all, timeout)
	switch result {
	case porcupine.Ok:
		return 0
	case porcupine.Unknown:
		fmt.Printf("undecided: %s: no answer within %s\n", name, timeout)
		return undecided
	}
	fmt.Printf("violation: %s: %s\n", name, unplaced(info, history))
	picture := filepath.Join(folder, unsafeInNames.ReplaceAllString(name, "-")+".html")
	if err := porcupine.VisualizePath(model, info, picture); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		fmt.Printf("picture: %s\n", picture)
	}
	return violated
}

// operations are those of one object for porcupine; the open ones only if they are wanted.
func operations(history []*Operation, open bool) []porcupine.Operation {
	var found []porcupine.Operation
	for _, it := range history {
		if !it.open || open && !it.late {
			found = append(found, porcupine.Operation{ClientId: it.Client, Input: it, Call: it.Call, Return: it.end})
		}
	}
	return found
}

// unplaced names the operation that returned first among those which the longest order of operations does without.
func unplaced(info porcupine.LinearizationInfo, history []*Operation) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := map[*Operation]bool{}
	for _, it := range longest {
		placed[it.Input.(*Operation)] = true
	}
	var first *Operation
	for _, it := range history {
		if !placed[it] && (first == nil || it.end < first.end) {
			first = it
		}
	}
	if len(longest) == 0 {
		return fmt.Sprintf("%s cannot be placed at all", first)
	}
	last := longest[len(longest)-1].Input.(*Operation)
	return fmt.Sprintf("%s cannot be placed; %d of %d operations can, the last %s", first, len(longest), len(history), last)
}

func summary(objects map[string][]*Operation, names []string) string {
	counts, objectsOf := map[string]int{}, map[string]int{}
	for _, name := range names {
		model := objects[name][0].Model
		counts[model] += len(objects[name])
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
