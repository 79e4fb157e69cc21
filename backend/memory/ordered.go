package memory

import (
	"cmp"
	"slices"
)

// chunkSize bounds what an insertion or a removal moves.
const chunkSize = 512

// ordered is a list of runs, ascending by an instant and then by id: chunks of bounded
// size, so that a run in the middle costs little, and one at either end, where nearly all
// are added and removed, next to nothing.
type ordered struct {
	chunks [][]entry
	count  int
}

func (a entry) compare(b entry) int {
	if c := cmp.Compare(a.at, b.at); c != 0 {
		return c
	}
	return cmp.Compare(a.row.id, b.row.id)
}

// find is the place of the first entry that is not before e: its chunk, and its position
// in there, which is one past the end only when e is after all entries.
func (o *ordered) find(e entry) (chunk, pos int) {
	if n := len(o.chunks); n > 0 {
		if last := o.chunks[n-1]; last[len(last)-1].before(e) {
			return n - 1, len(last)
		}
		if !o.first().before(e) {
			return 0, 0
		}
	}
	chunk, _ = slices.BinarySearchFunc(o.chunks, e, func(c []entry, e entry) int {
		return c[len(c)-1].compare(e)
	})
	if chunk == len(o.chunks) {
		return 0, 0 // there are none
	}
	pos, _ = slices.BinarySearchFunc(o.chunks[chunk], e, entry.compare)
	return chunk, pos
}

func (o *ordered) insert(e entry) {
	o.count++
	chunk, pos := o.find(e)
	switch {
	case len(o.chunks) == 0:
		o.chunks = append(o.chunks, []entry{e})
		return
	case len(o.chunks[chunk]) < chunkSize:
	case pos == chunkSize:
		// After all: a chunk of its own, and the full one stays full.
		o.chunks = append(o.chunks, append(make([]entry, 0, chunkSize), e))
		return
	default:
		full := o.chunks[chunk]
		rest := append(make([]entry, 0, chunkSize), full[chunkSize/2:]...)
		clear(full[chunkSize/2:])
		o.chunks[chunk] = full[:chunkSize/2]
		o.chunks = slices.Insert(o.chunks, chunk+1, rest)
		if pos > chunkSize/2 {
			chunk, pos = chunk+1, pos-chunkSize/2
		}
	}
	o.chunks[chunk] = slices.Insert(o.chunks[chunk], pos, e)
}

func (o *ordered) remove(e entry) {
	chunk, pos := o.find(e)
	if len(o.chunks) == 0 || pos == len(o.chunks[chunk]) || o.chunks[chunk][pos] != e {
		return
	}
	o.count--
	if pos == 0 {
		o.chunks[chunk][0] = entry{}
		o.chunks[chunk] = o.chunks[chunk][1:]
	} else {
		o.chunks[chunk] = slices.Delete(o.chunks[chunk], pos, pos+1)
	}
	if len(o.chunks[chunk]) == 0 {
		o.chunks = slices.Delete(o.chunks, chunk, chunk+1)
	}
}

// first is the first entry of a list that is not empty.
func (o *ordered) first() entry { return o.chunks[0][0] }

// cursor is a position in a list that does not change meanwhile; the zero cursor is the first.
type cursor struct{ chunk, pos int }

// get is the entry at a position; ok is false past the end.
func (o *ordered) get(c cursor) (e entry, ok bool) {
	if c.chunk == len(o.chunks) {
		return entry{}, false
	}
	return o.chunks[c.chunk][c.pos], true
}

// after is the position behind one at which there is an entry.
func (o *ordered) after(c cursor) cursor {
	if c.pos++; c.pos == len(o.chunks[c.chunk]) {
		return cursor{chunk: c.chunk + 1}
	}
	return c
}

// before copies up to n entries before e, the last first.
func (o *ordered) before(e entry, n int) []entry {
	chunk, pos := o.find(e)
	out := make([]entry, 0, min(n, o.count))
	for ; len(o.chunks) > 0 && chunk >= 0 && len(out) < n; chunk-- {
		if pos < 0 {
			pos = len(o.chunks[chunk])
		}
		for pos > 0 && len(out) < n {
			pos--
			out = append(out, o.chunks[chunk][pos])
		}
		pos = -1
	}
	return out
}
