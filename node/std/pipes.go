package std

import (
	"io"
	"os"
	"sync"
	"time"
)

// output keeps what a command writes, up to a limit.
type output struct {
	what  string
	limit int
	kept  []byte
	size  int // what was written, over the limit too
}

// pipes connect a command with goroutines that feed and drain it.
type pipes struct {
	theirs, ours []*os.File
	work         []func()
	done         sync.WaitGroup
}

// feed makes text what a command reads.
func (p *pipes) feed(to *io.Reader, text string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	*to = r
	p.theirs, p.ours = append(p.theirs, r), append(p.ours, w)
	p.work = append(p.work, func() {
		// A command need not read what it is given.
		_, _ = io.WriteString(w, text)
		_ = w.Close()
	})
	return nil
}

// drain keeps what a command writes in o; over is called once, when it is too much.
// What comes after is read, so that the command does not block, and forgotten.
func (p *pipes) drain(from *io.Writer, o *output, over func(*output)) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	*from = w
	p.theirs, p.ours = append(p.theirs, w), append(p.ours, r)
	p.work = append(p.work, func() {
		buffer := make([]byte, 32<<10)
		for {
			n, err := r.Read(buffer)
			before := o.size
			o.size += n
			switch {
			case o.size <= o.limit:
				o.kept = append(o.kept, buffer[:n]...)
			case before <= o.limit:
				over(o)
			}
			if err != nil {
				return
			}
		}
	})
	return nil
}

// start lets the command alone hold its ends, and begins to feed and drain.
func (p *pipes) start() {
	for _, f := range p.theirs {
		_ = f.Close()
	}
	p.theirs = nil
	for _, work := range p.work {
		p.done.Go(work)
	}
}

// wait waits until all is read. After the time given, what another process still holds
// open is left alone.
func (p *pipes) wait(limit time.Duration) {
	closer := time.AfterFunc(limit, p.close)
	p.done.Wait()
	closer.Stop()
}

// close closes every end; a second time it does nothing that counts.
func (p *pipes) close() {
	for _, f := range append(p.theirs, p.ours...) {
		_ = f.Close()
	}
}
