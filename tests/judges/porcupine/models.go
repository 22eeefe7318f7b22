package main

import (
	"fmt"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// kind is one sort of operation of a model.
type kind struct {
	// writes: it may change something, so its outcome may be unknown.
	writes bool
	// value is what it writes.
	value func(Input) string
	// needs says what an input, and what an output must have.
	needs func(Input) bool
	tells func(Output) bool
	// read: its output shows a written value, and what the writer would have been told.
	read func(*Operation) (string, *Output)
}

func (it kind) lacks(operation *Operation) error {
	if it.needs != nil && !it.needs(operation.Input) {
		return fmt.Errorf("the input of %s is incomplete", operation.Kind)
	}
	if output := operation.Output; output != nil && it.tells != nil {
		if !output.Refused && !output.Conflict && !it.tells(*output) {
			return fmt.Errorf("the output of %s is incomplete", operation.Kind)
		}
	}
	return nil
}

func (it kind) seen(operation *Operation) (string, *Output) {
	if it.read == nil || operation.Output.Missing {
		return "", nil
	}
	return it.read(operation)
}

// model is a sequential specification, and the operations that it knows.
type model struct {
	kinds map[string]kind
	init  any
	step  func(state any, it *Operation) (bool, any)
	same  func(a, b any) bool
	hash  func(state any) uint64
	show  func(state any) string
}

var models map[string]model

func init() {
	models = map[string]model{
		"log":      logModel(),
		"expected": registerModel(expectedKinds()),
		"bucket":   registerModel(bucketKinds()),
		"commits":  commitsModel(),
	}
}

// porcupine is the model as the checker wants it, for the operations of many objects.
func (it model) porcupine() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			places := map[string]int{}
			var found [][]porcupine.Operation
			for _, operation := range history {
				name := operation.Input.(*Operation).object()
				place, known := places[name]
				if !known {
					place = len(found)
					places[name] = place
					found = append(found, nil)
				}
				found[place] = append(found[place], operation)
			}
			return found
		},
		Init: func() any { return it.init },
		Step: func(state, input, _ any) (bool, any) { return it.step(state, input.(*Operation)) },
		Equal: func(a, b any) bool {
			if it.same == nil {
				return a == b
			}
			return it.same(a, b)
		},
		Hash:              it.hash,
		DescribeOperation: func(input, _ any) string { return describe(input.(*Operation)) },
		DescribeState:     func(state any) string { return it.show(state) },
	}
}

func hasValue(input Input) bool   { return input.Value != nil && *input.Value != "" }
func hasOffset(input Input) bool  { return input.Offset != nil }
func valueOf(input Input) string  { return *input.Value }
func isNumbered(told Output) bool { return told.Sequence != nil }
func isPlaced(told Output) bool   { return told.Offset != nil }
func readAsWritten(it *Operation) (string, *Output) {
	return *it.Output.Value, &Output{Sequence: it.Output.Sequence}
}

// The log of one partition. An append gets the next offset; what is read at an offset is what was appended there, at
// once for every reader, and for ever until the stream is deleted.

// entry is the newest record of a log, and through it all others: logs are compared by their hashes.
type entry struct {
	value string
	end   int64
	hash  uint64
	// before is the entry one below, and far one that is many below.
	before, far *entry
}

// logState: a stream that exists, or does not, and its newest record. One that is being deleted is known to some nodes
// and not to others, until the deletion is answered: a delete is followed by a gone, and both lie between its call and
// its return.
type logState struct {
	exists bool
	going  bool
	newest *entry
}

func (it logState) end() int64 {
	if it.newest == nil {
		return 0
	}
	return it.newest.end
}

func (it logState) append(value string) logState {
	added := &entry{value: value, end: it.end() + 1, before: it.newest}
	added.hash = hashOf(value)
	if below := it.newest; below != nil {
		added.hash ^= below.hash * 0x9E3779B97F4A7C15
		added.far = below
		// Spans that double: from any entry, another one is found in logarithmic time.
		if below.far != nil && below.far.far != nil && below.end-below.far.end == below.far.end-below.far.far.end {
			added.far = below.far.far
		}
	}
	return logState{it.exists, it.going, added}
}

func (it logState) at(offset int64) (string, bool) {
	if offset < 0 || offset >= it.end() {
		return "", false
	}
	found := it.newest
	for found.end != offset+1 {
		if found.far != nil && found.far.end >= offset+1 {
			found = found.far
		} else {
			found = found.before
		}
	}
	return found.value, true
}

func hashOf(text string) uint64 {
	hash := uint64(14695981039346656037)
	for i := 0; i < len(text); i++ {
		hash = (hash ^ uint64(text[i])) * 1099511628211
	}
	return hash
}

func logModel() model {
	read := func(it *Operation) (string, *Output) {
		return *it.Output.Value, &Output{Offset: it.Input.Offset}
	}
	return model{
		kinds: map[string]kind{
			"append": {writes: true, value: valueOf, needs: hasValue, tells: isPlaced},
			"read": {needs: hasOffset, read: read, tells: func(told Output) bool {
				return told.Missing || told.Value != nil
			}},
			"end":    {tells: isPlaced},
			"delete": {writes: true},
			"gone":   {writes: true},
			"create": {writes: true},
		},
		init: logState{exists: true},
		step: func(state any, it *Operation) (bool, any) { return logStep(state.(logState), it) },
		same: func(a, b any) bool {
			one, two := a.(logState), b.(logState)
			if one.exists != two.exists || one.going != two.going || one.end() != two.end() {
				return false
			}
			return one.newest == two.newest || one.newest != nil && one.newest.hash == two.newest.hash
		},
		hash: func(state any) uint64 {
			if newest := state.(logState).newest; newest != nil {
				return newest.hash
			}
			return 0
		},
		show: func(state any) string {
			it := state.(logState)
			switch {
			case !it.exists:
				return "no stream"
			case it.newest == nil:
				return "empty"
			}
			text := fmt.Sprintf("%d records, the last %q", it.end(), it.newest.value)
			if it.going {
				text += ", being deleted"
			}
			return text
		},
	}
}

func logStep(state logState, it *Operation) (bool, any) {
	told := it.Output
	if told != nil && told.Refused {
		return true, state
	}
	switch it.Kind {
	case "append":
		if told == nil {
			if !state.exists {
				return true, state
			}
			return true, state.append(*it.Input.Value)
		}
		return state.exists && *told.Offset == state.end(), state.append(*it.Input.Value)
	case "read":
		value, found := state.at(*it.Input.Offset)
		if told.Missing {
			return !found || state.going, state
		}
		return found && value == *told.Value, state
	case "end":
		return state.exists && *told.Offset == state.end(), state
	case "delete":
		return true, logState{exists: state.exists, going: state.exists, newest: state.newest}
	case "gone":
		if state.exists && !state.going {
			return told == nil, state
		}
		return true, logState{}
	default: // create, which leaves alone what exists
		if state.exists {
			return true, state
		}
		return true, logState{exists: true}
	}
}

// The last message of one subject, and with it the value of a key. Its sequences only grow. A write that expects a
// sequence takes effect if that is the last one, and is a conflict if and only if it is not.

// register: what the last message is. The sequence of one whose client was not told it is unknown until another is.
type register struct {
	sequence int64
	known    bool
	// above: the sequence is greater than this one, where it is unknown.
	above   int64
	value   string
	present bool
}

// is binds the sequence to a number if it can be that.
func (it register) is(sequence int64) (bool, register) {
	if it.known {
		return it.sequence == sequence, it
	}
	bound := it
	bound.sequence, bound.known = sequence, true
	return sequence > it.above, bound
}

// written is the register after a message; told is nil or has no sequence if its client does not know that.
func (it register) written(told *Output, value string, present bool) (bool, register) {
	floor := it.above
	if it.known {
		floor = it.sequence
	}
	if told == nil || told.Sequence == nil {
		return true, register{above: floor, value: value, present: present}
	}
	return *told.Sequence > floor, register{sequence: *told.Sequence, known: true, value: value, present: present}
}

func expectedKinds() map[string]kind {
	return map[string]kind{
		"publish": {writes: true, value: valueOf, needs: hasValue, tells: isNumbered},
		"read":    {read: readAsWritten, tells: isRead},
	}
}

func bucketKinds() map[string]kind {
	return map[string]kind{
		"put":    {writes: true, value: valueOf, needs: hasValue, tells: isNumbered},
		"create": {writes: true, value: valueOf, needs: hasValue, tells: isNumbered},
		"update": {writes: true, value: valueOf, tells: isNumbered, needs: func(input Input) bool {
			return hasValue(input) && input.Expected != nil
		}},
		"delete": {writes: true},
		"get":    {read: readAsWritten, tells: isRead},
	}
}

func isRead(told Output) bool { return told.Missing || told.Value != nil && told.Sequence != nil }

func registerModel(kinds map[string]kind) model {
	return model{
		kinds: kinds,
		init:  register{known: true},
		step:  func(state any, it *Operation) (bool, any) { return registerStep(state.(register), it) },
		hash: func(state any) uint64 {
			it := state.(register)
			return hashOf(it.value) ^ uint64(it.sequence)
		},
		show: func(state any) string {
			it := state.(register)
			sequence := "?"
			if it.known {
				sequence = strconv.FormatInt(it.sequence, 10)
			}
			if !it.present {
				return fmt.Sprintf("nothing (%s)", sequence)
			}
			return fmt.Sprintf("%q (%s)", it.value, sequence)
		},
	}
}

func registerStep(state register, it *Operation) (bool, any) {
	told := it.Output
	if told != nil && told.Refused {
		return true, state
	}
	if it.Kind == "read" || it.Kind == "get" {
		return readStep(state, told)
	}
	value, present := it.sets, it.Kind != "delete"
	fits, bound := true, state
	switch {
	case it.Kind == "create":
		fits = !state.present
	case it.Input.Expected != nil:
		fits, bound = state.is(*it.Input.Expected)
	}
	switch {
	case told == nil && !fits:
		return true, state
	case told == nil || !told.Conflict:
		taken, next := bound.written(told, value, present)
		return fits && taken, next
	default:
		return conflictStep(state, it)
	}
}

func readStep(state register, told *Output) (bool, any) {
	if told.Missing == state.present || !told.Missing && *told.Value != state.value {
		return false, state
	}
	if told.Sequence == nil {
		return true, state
	}
	return state.is(*told.Sequence)
}

// conflictStep: a create asks for the key twice, so the mark of a deletion may refuse it, too.
func conflictStep(state register, it *Operation) (bool, any) {
	if it.Kind == "create" {
		return !state.known || state.sequence != 0, state
	}
	if last := it.Output.Last; last != nil {
		is, bound := state.is(*last)
		return is && *last != *it.Input.Expected, bound
	}
	return !state.known || state.sequence != *it.Input.Expected, state
}

// The committed offset of one group in one partition: what was committed last is what is fetched.

func commitsModel() model {
	return model{
		kinds: map[string]kind{
			"commit": {writes: true, needs: hasOffset, value: func(input Input) string {
				return strconv.FormatInt(*input.Offset, 10)
			}},
			"fetch": {
				read: func(it *Operation) (string, *Output) {
					return strconv.FormatInt(*it.Output.Offset, 10), &Output{}
				},
				tells: func(told Output) bool { return told.Missing || told.Offset != nil },
			},
		},
		init: int64(-1),
		step: func(state any, it *Operation) (bool, any) {
			switch told := it.Output; {
			case told != nil && told.Refused:
				return true, state
			case it.Kind == "commit":
				return true, *it.Input.Offset
			case told.Missing:
				return state == int64(-1), state
			default:
				return state == *told.Offset, state
			}
		},
		show: func(state any) string { return fmt.Sprintf("%d", state) },
	}
}
