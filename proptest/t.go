package proptest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// T is what the kit needs of a test. *testing.T and *rapid.T satisfy it; Attempt makes one
// outside any test framework.
type T interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	// Fatalf and FailNow end the calling goroutine; they are called on the goroutine that
	// was given the T.
	Fatalf(format string, args ...any)
	FailNow()
	Failed() bool
	// Cleanup registers a function that is called, last one first, when the test ends.
	Cleanup(f func())
}

// Attempt runs f with a T of its own and reports whether it passed. What f logs goes to
// logf, which may be nil. A panic of f counts as a failure and is logged.
func Attempt(name string, logf func(format string, args ...any), f func(T)) (passed bool) {
	if logf == nil {
		logf = func(string, ...any) {}
	}
	a := &attempt{name: name, logf: logf}
	done := make(chan struct{})
	// A goroutine of its own, so that FailNow may end it.
	go func() {
		defer close(done)
		defer a.cleanup()
		defer func() {
			if p := recover(); p != nil {
				a.Errorf("panic: %v\n%s", p, stack())
			}
		}()
		f(a)
	}()
	<-done
	return !a.Failed()
}

// attempt is the T of Attempt.
type attempt struct {
	name string
	logf func(format string, args ...any)

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

func (a *attempt) Helper()      {}
func (a *attempt) Name() string { return a.name }

func (a *attempt) Logf(format string, args ...any) { a.logf(format, args...) }

func (a *attempt) Errorf(format string, args ...any) {
	a.logf(format, args...)
	a.mu.Lock()
	a.failed = true
	a.mu.Unlock()
}

func (a *attempt) Fatalf(format string, args ...any) {
	a.Errorf(format, args...)
	runtime.Goexit()
}

func (a *attempt) FailNow() {
	a.mu.Lock()
	a.failed = true
	a.mu.Unlock()
	runtime.Goexit()
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	a.cleanups = append(a.cleanups, f)
	a.mu.Unlock()
}

func (a *attempt) cleanup() {
	for {
		a.mu.Lock()
		n := len(a.cleanups)
		if n == 0 {
			a.mu.Unlock()
			return
		}
		f := a.cleanups[n-1]
		a.cleanups = a.cleanups[:n-1]
		a.mu.Unlock()
		f()
	}
}

// stack is the stack of a recovered panic.
func stack() string {
	buf := make([]byte, 16<<10)
	return string(buf[:runtime.Stack(buf, false)])
}

// subtest runs f as a part of t with a name of its own, and reports whether it passed:
// under *testing.T a subtest, else an Attempt whose failure is t's.
func subtest(t T, name string, f func(T)) bool {
	t.Helper()
	if tt, ok := t.(*testing.T); ok {
		return tt.Run(name, func(tt *testing.T) { f(tt) })
	}
	name = fmt.Sprintf("%s/%s", t.Name(), name)
	passed := Attempt(name, func(format string, args ...any) {
		t.Logf("%s: %s", name, fmt.Sprintf(format, args...))
	}, f)
	if !passed {
		t.Errorf("%s failed", name)
	}
	return passed
}
