package lifecycle

import (
	"bytes"
	"runtime"
)

// goroutine names a goroutine as the runtime does, "goroutine 7"; empty when unknown.
type goroutine string

// maxStacks bounds the dump in which one goroutine is looked for.
const maxStacks = 16 << 20

func currentGoroutine() goroutine {
	var buf [64]byte
	head := buf[:runtime.Stack(buf[:], false)]
	if i := bytes.IndexByte(head, '['); i > 0 {
		return goroutine(bytes.TrimSpace(head[:i]))
	}
	return ""
}

// stack is where the goroutine is. It stops the world for a moment: only for what went wrong.
func (g goroutine) stack() string {
	if g == "" {
		return ""
	}
	for size := 64 << 10; ; size *= 4 {
		buf := make([]byte, size)
		n := runtime.Stack(buf, true)
		if n == size && size < maxStacks {
			continue
		}
		for _, one := range bytes.Split(buf[:n], []byte("\n\n")) {
			if bytes.HasPrefix(one, []byte(string(g)+" [")) {
				return string(one)
			}
		}
		return ""
	}
}
