package std_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/node/std"
)

// helper makes the test binary the commands that the tests run.
const helper = "STD_TEST_HELPER"

func TestMain(m *testing.M) {
	// A worker of the fuzzer inherits the variable, and is a test all the same.
	if os.Getenv(helper) != "" && !strings.HasPrefix(os.Args[1], "-test.") {
		os.Exit(command(os.Args[1], os.Args[2:]))
	}
	// Under the race detector a process sleeps before it exits.
	if err := errors.Join(os.Setenv(helper, "1"), os.Setenv("GORACE", "atexit_sleep_ms=0")); err != nil {
		panic(err)
	}
	std.SetGrace(200 * time.Millisecond)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		os.Exit(code)
	}))
}

// command is what one run of the test binary as a command does.
func command(name string, args []string) int {
	switch name {
	case "echo":
		fmt.Printf("%q", args)
		fmt.Fprint(os.Stderr, "said")
	case "cat":
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			return 1
		}
	case "env":
		for _, name := range args {
			fmt.Printf("%s=%s\n", name, os.Getenv(name))
		}
	case "pwd":
		dir, err := os.Getwd()
		if err != nil {
			return 1
		}
		fmt.Print(dir)
	case "exit":
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return 99
		}
		fmt.Fprint(os.Stderr, strings.Repeat("noise ", 2000)+"the end\xff")
		return code
	case "bytes":
		_, _ = os.Stdout.Write([]byte("a\xff\xfeb\x00\xe9"))
	case "flood":
		size, err := strconv.Atoi(args[1])
		if err != nil {
			return 99
		}
		to := map[string]*os.File{"stdout": os.Stdout, "stderr": os.Stderr}[args[0]]
		_, _ = to.Write(bytes.Repeat([]byte("x"), size))
	case "hold":
		return hold(args)
	case "leave":
		return leave(args)
	default:
		return 98
	}
	return 0
}

// hold connects to an address, starts as many generations of itself as are asked for, and
// stays until the connection ends. How it takes SIGTERM: "deaf" ignores it, "polite" says
// goodbye, else it dies of it.
func hold(args []string) int {
	address, manner, generations := args[0], args[1], args[2]
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 97
	}
	switch manner {
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
	case "polite":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		go func() {
			<-asked
			_, _ = io.WriteString(conn, "goodbye")
			os.Exit(0)
		}()
	}
	if n, _ := strconv.Atoi(generations); n > 1 {
		child := exec.Command(os.Args[0], "hold", address, manner, strconv.Itoa(n-1))
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			return 96
		}
	}
	_, _ = io.WriteString(conn, "hello")
	_, _ = io.Copy(io.Discard, conn)
	return 95
}
