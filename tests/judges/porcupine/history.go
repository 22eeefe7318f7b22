package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"
)

const lineBytesMax = 16 << 20

// forever is the return of an operation whose outcome its client never learnt.
const forever = math.MaxInt64

// Input is what an operation was asked to do. Which fields count depends on its kind.
type Input struct {
	Value    *string `json:"value,omitempty"`
	Offset   *int64  `json:"offset,omitempty"`
	Expected *int64  `json:"expected,omitempty"`
}

// Output is what its client was told. No output at all: the outcome is unknown.
type Output struct {
	Value    *string `json:"value,omitempty"`
	Offset   *int64  `json:"offset,omitempty"`
	Sequence *int64  `json:"sequence,omitempty"`
	// Last is the sequence that a conflict named.
	Last *int64 `json:"last,omitempty"`
	// Missing: there is nothing to read.
	Missing bool `json:"missing,omitempty"`
	// Conflict: refused, because the expected sequence was not the last one.
	Conflict bool `json:"conflict,omitempty"`
	// Refused: for another reason, with the promise that nothing was stored.
	Refused bool `json:"refused,omitempty"`
}

// Operation is one line of a history.
type Operation struct {
	Client int     `json:"client"`
	Call   int64   `json:"call_ns"`
	Return *int64  `json:"return_ns"`
	Model  string  `json:"model"`
	Key    string  `json:"key"`
	Kind   string  `json:"kind"`
	Input  Input   `json:"input"`
	Output *Output `json:"output"`

	line int
	// end is Return, or forever, or by when another client had seen the effect.
	end int64
	// open: it may have taken effect, or may yet do so, and no client ever saw that.
	open bool
	// late: if it is open, it cannot have taken effect before anything that clients saw.
	late bool
	// began is Call, or earlier if the operation may tell what was so before.
	began int64
	// sets is the value that the operation writes, or empty.
	sets string
}

// mayBeLate: what it tells was so, but another leader may know more by now. What is read at an offset stays so.
func (it *Operation) mayBeLate() bool {
	if it.Output == nil {
		return false
	}
	isRead := !models[it.Model].kinds[it.Kind].writes
	return isRead && (it.Model != "log" || it.Kind == "end" || it.Output.Missing)
}

// object is what is checked by itself.
func (it *Operation) object() string { return it.Model + " " + it.Key }

func (it *Operation) String() string {
	when := fmt.Sprintf("[%d, %d]", it.Call, it.end)
	if it.end == forever {
		when = fmt.Sprintf("[%d, unknown]", it.Call)
	}
	return fmt.Sprintf("client %d %s %s (line %d)", it.Client, describe(it), when, it.line)
}

func describe(it *Operation) string {
	input, _ := json.Marshal(it.Input)
	output := []byte("unknown")
	if it.Output != nil {
		output, _ = json.Marshal(it.Output)
	}
	return fmt.Sprintf("%s %s -> %s", it.Kind, input, output)
}

// readHistory returns the operations of each object. An error names the line.
func readHistory(source io.Reader) (map[string][]*Operation, error) {
	objects := map[string][]*Operation{}
	lines := bufio.NewScanner(source)
	lines.Buffer(nil, lineBytesMax)
	for number := 1; lines.Scan(); number++ {
		it := &Operation{line: number}
		if err := decode(lines.Bytes(), it); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		objects[it.object()] = append(objects[it.object()], it)
		if it.Kind == "delete" && it.Model == "log" {
			gone := *it
			gone.Kind = "gone"
			objects[it.object()] = append(objects[it.object()], &gone)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("the history has no operations")
	}
	for name, operations := range objects {
		if err := settle(operations); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return objects, nil
}

func decode(line []byte, it *Operation) error {
	if err := json.Unmarshal(line, it); err != nil {
		return err
	}
	kinds, known := models[it.Model]
	if !known {
		return fmt.Errorf("there is no model %q", it.Model)
	}
	kind, known := kinds.kinds[it.Kind]
	if !known || it.Kind == "gone" {
		return fmt.Errorf("the model %s has no operation %q", it.Model, it.Kind)
	}
	if err := kind.lacks(it); err != nil {
		return err
	}
	if (it.Return == nil) != (it.Output == nil) {
		return fmt.Errorf("return_ns and output are known together, or both unknown (null)")
	}
	if it.Output == nil && !kind.writes {
		return fmt.Errorf("a %s without an outcome says nothing: leave it out", it.Kind)
	}
	if it.Return != nil && *it.Return < it.Call {
		return fmt.Errorf("it returned before it was called")
	}
	it.began, it.end = it.Call, forever
	if it.Return != nil {
		it.end = *it.Return
	}
	if kind.value != nil {
		it.sets = kind.value(it.Input)
	}
	return nil
}

// settle gives writes of unknown outcome the outcome that a reader saw. Values are written once each, so who reads one
// proves that its write took effect, where, and by when. The others stay open.
func settle(operations []*Operation) error {
	writers := map[string]*Operation{}
	for _, it := range operations {
		if it.sets == "" {
			continue
		}
		if other, twice := writers[it.sets]; twice {
			return fmt.Errorf("lines %d and %d write the same value %q", other.line, it.line, it.sets)
		}
		writers[it.sets] = it
	}
	sort.SliceStable(operations, func(i, j int) bool { return operations[i].end < operations[j].end })
	for _, it := range operations {
		if it.Output == nil || it.sets != "" {
			continue
		}
		seen, output := models[it.Model].kinds[it.Kind].seen(it)
		if writer := writers[seen]; seen != "" && writer != nil && writer.Output == nil {
			writer.Output, writer.end = output, max(it.end, writer.Call)
		}
	}
	late := operations[0].Model == "log" && isWithoutHoles(operations)
	for _, it := range operations {
		it.open, it.late = it.Output == nil, late
	}
	return nil
}

// isWithoutHoles: clients know what is at each offset of a log up to where it ends, so nothing else is there.
func isWithoutHoles(operations []*Operation) bool {
	known, end := map[int64]bool{}, int64(0)
	for _, it := range operations {
		if it.Kind == "delete" {
			return false
		}
		if it.Output == nil || it.Output.Refused || it.Output.Missing {
			continue
		}
		switch it.Kind {
		case "append":
			known[*it.Output.Offset], end = true, max(end, *it.Output.Offset+1)
		case "read":
			known[*it.Input.Offset], end = true, max(end, *it.Input.Offset+1)
		case "end":
			end = max(end, *it.Output.Offset)
		}
	}
	return int64(len(known)) == end
}
