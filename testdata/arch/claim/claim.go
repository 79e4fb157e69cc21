package claim

import (
	"fmt"
	"math/rand/v2" // want: claim is pure and may not import math/rand/v2
	"sync"
	clock "time"

	"github.com/belay-run/belay/value" // want: claim may not import value
)

func init() {} // want: claim is a library and may not have an init function

func now() {
	_ = clock.Now()                          // want: claim is pure and may not use time.Now
	_ = clock.Since(clock.Time{})            // want: claim is pure and may not use time.Since
	clock.AfterFunc(clock.Second, func() {}) // want: claim is pure and may not use time.AfterFunc
	_ = rand.Int()
	go now()            // want: claim is pure and may not start a goroutine
	fmt.Println("due")  // want: claim is a library and may not use fmt.Println
	println("due")      // want: claim is a library and may not call println
	panic(value.Null()) // want: claim is a library and may not call panic
}

var once sync.Once
