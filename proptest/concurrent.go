package proptest

import (
	"fmt"
	"sync"
	"time"
)

// together calls do(0) to do(n-1) at once, on goroutines that begin together, waits for
// all of them, and fails for every error.
func (r *rig) together(n int, do func(i int) error) {
	r.Helper()
	begin := make(chan struct{})
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					errs[i] = fmt.Errorf("panic: %v\n%s", p, stack())
				}
			}()
			<-begin
			errs[i] = do(i)
		})
	}
	close(begin)
	all.Wait()
	for i, err := range errs {
		if err != nil {
			r.Errorf("call %d of %d at once: %v", i+1, n, err)
		}
	}
}

// eventually waits until a condition holds that another goroutine brings about, and ends
// the case if it does not before the case's time is up.
func (r *rig) eventually(what string, holds func() bool) {
	r.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-r.ctx.Done():
			r.Fatalf("%s: it did not come to that", what)
		}
	}
}
