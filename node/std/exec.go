package std

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

const execConfigSchema = `{
  "type": "object",
  "description": "Runs a command. It inherits the environment of the process, and is told BELAY_RUN, BELAY_NODE, BELAY_ATTEMPT and BELAY_IDEMPOTENCY_KEY. Another exit code than the listed ones is a retryable failure, whose details hold the code and the end of stderr; output over the limit is a permanent one. When the attempt's time is over, the command and all of its process group are ended.",
  "additionalProperties": false,
  "anyOf": [{"required": ["argv"]}, {"required": ["shell"]}],
  "properties": {
    "argv": {
      "type": "array", "items": {"type": "string"},
      "description": "The program and its arguments, without a shell. An element that is exactly one expression giving a list stands for as many arguments."
    },
    "shell": {
      "type": "string", "minLength": 1,
      "description": "A script for the system's shell, taken as it stands: ${...} in it is the shell's own. Pass values through env, or as $1, $2 and so on through argv."
    },
    "dir": {"type": "string", "description": "The working directory. Defaults to that of the process."},
    "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Environment variables, in addition."},
    "stdin": {"description": "What the command reads: a text as it is, anything else as JSON. Defaults to nothing."},
    "ok_codes": {
      "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 4294967295}, "minItems": 1, "default": [0],
      "description": "The exit codes that are success."
    },
    "encoding": {
      "enum": ["text", "base64"], "default": "text",
      "description": "How stdout and stderr are kept: as text, where each byte that is not UTF-8 becomes U+FFFD, or exactly, as base64."
    },
    "max_output": {
      "type": "integer", "minimum": 1, "maximum": 8388608, "default": 1048576,
      "description": "The most bytes of stdout, and of stderr. Beyond it the command is ended and the run fails: nothing is cut."
    }
  }
}`

// execType runs a command. It writes stdout, stderr and exit_code. Another exit code
// than the listed ones is a retryable failure, whose details hold the code and the end
// of stderr; output over the limit is a permanent one. When the attempt's context ends,
// the command and all of its process group are ended: asked to first (SIGTERM), forced a
// little later. What a command leaves behind in its process group when it exits is ended
// too. (Where there are no process groups, the tree of processes is ended as far as the
// system tells it.)
func execType() node.Type {
	return newType(graph.NodeType{
		Name: "exec", Version: 1, OpenReads: true, Config: value.Value(execConfigSchema),
		Writes: map[string]graph.Port{
			"stdout":    {Schema: value.Value(`{"type": "string", "description": "What it wrote to its standard output, in the encoding of the config."}`)},
			"stderr":    {Schema: value.Value(`{"type": "string", "description": "What it wrote to its standard error, likewise."}`)},
			"exit_code": {Schema: value.Value(`{"type": "integer", "description": "The exit code, one of ok_codes."}`)},
		},
	}, func(config value.Value, names scope, _ []string) (node.Func, error) {
		e, err := newCommand(config, names)
		if err != nil {
			return nil, err
		}
		return e.run, nil
	})
}

// command is a prepared exec node.
type command struct {
	argv      []template
	shell     string
	dir       template
	env       map[string]template
	stdin     *tree
	okCodes   []int
	base64    bool
	maxOutput int
}

func newCommand(config value.Value, names scope) (*command, error) {
	in := struct {
		Argv      []string          `json:"argv"`
		Shell     string            `json:"shell"`
		Dir       string            `json:"dir"`
		Env       map[string]string `json:"env"`
		Stdin     value.Value       `json:"stdin"`
		OKCodes   []int             `json:"ok_codes"`
		Encoding  string            `json:"encoding"`
		MaxOutput int               `json:"max_output"`
	}{OKCodes: []int{0}, MaxOutput: 1 << 20}
	if err := json.Unmarshal(config, &in); err != nil {
		return nil, err
	}
	c := &command{
		shell: in.Shell, okCodes: in.OKCodes, base64: in.Encoding == "base64", maxOutput: in.MaxOutput,
		env: map[string]template{},
	}
	var errs []error
	if in.Shell == "" && len(in.Argv) == 0 {
		errs = append(errs, &value.Error{Path: "/argv", Reason: "it names no program: give at least one element"})
	}
	for i, arg := range in.Argv {
		t, err := names.template(arg, "/argv/"+strconv.Itoa(i))
		c.argv, errs = append(c.argv, t), append(errs, err)
	}
	var err error
	c.dir, err = names.template(in.Dir, "/dir")
	errs = append(errs, err)
	for _, name := range slices.Sorted(maps.Keys(in.Env)) {
		path := "/env/" + escape(name)
		if name == "" || strings.ContainsAny(name, "=\x00") {
			errs = append(errs, &value.Error{Path: path, Reason: "the name of an environment variable is not empty and has no \"=\": rename it"})
		}
		c.env[name], err = names.template(in.Env[name], path)
		errs = append(errs, err)
	}
	if in.Stdin != nil {
		t, err := names.tree(in.Stdin, "/stdin")
		c.stdin, errs = &t, append(errs, err)
	}
	return c, errors.Join(errs...)
}

func (c *command) run(ctx context.Context, call *node.Call) (map[string]value.Value, error) {
	p, err := c.process(call)
	if err != nil {
		return nil, err
	}
	if err := p.run(ctx); err != nil {
		return nil, err
	}
	if !slices.Contains(c.okCodes, p.exitCode) {
		return nil, node.WithDetails(errors.New(p.ended()), map[string]any{
			"exit_code": p.exitCode, "stderr_tail": tail(p.stderr.kept), "stderr_bytes": p.stderr.size,
		})
	}
	return written(call, map[string]any{
		"stdout": c.stored(p.stdout.kept), "stderr": c.stored(p.stderr.kept), "exit_code": p.exitCode,
	})
}

// process makes the process of one attempt.
func (c *command) process(call *node.Call) (*process, error) {
	argv, err := c.arguments(call.Reads)
	if err != nil {
		return nil, err
	}
	if c.shell != "" {
		argv = append(shell(c.shell), argv...)
	}
	dir, err := c.dir.text(call.Reads)
	if err != nil {
		return nil, err
	}
	env := append(os.Environ(),
		"BELAY_RUN="+call.Run, "BELAY_NODE="+call.Node, "BELAY_ATTEMPT="+strconv.Itoa(call.Attempt), "BELAY_IDEMPOTENCY_KEY="+call.IdempotencyKey)
	for _, name := range slices.Sorted(maps.Keys(c.env)) {
		text, err := c.env[name].text(call.Reads)
		if err != nil {
			return nil, err
		}
		env = append(env, name+"="+text)
	}
	p := &process{argv: argv, dir: dir, env: env, maxOutput: c.maxOutput}
	if c.stdin != nil {
		v, err := c.stdin.value(call.Reads)
		if err != nil {
			return nil, err
		}
		text, err := asText(v)
		if err != nil {
			return nil, node.Permanent(fmt.Errorf("config/stdin: %w", err))
		}
		p.stdin = &text
	}
	for _, text := range append(append([]string{dir}, argv...), env...) {
		if strings.ContainsRune(text, 0) {
			return nil, node.Permanent(errors.New("an argument, the directory or an environment variable holds a NUL character, which no command can be given: pass it through stdin"))
		}
	}
	return p, nil
}

// arguments are the argument list, with lists spliced.
func (c *command) arguments(reads map[string]value.Value) ([]string, error) {
	var argv []string
	for _, t := range c.argv {
		if !t.whole() {
			text, err := t.text(reads)
			if err != nil {
				return nil, err
			}
			argv = append(argv, text)
			continue
		}
		v, err := t.value(reads)
		if err != nil {
			return nil, err
		}
		items := []value.Value{v}
		if v[0] == '[' {
			items = nil
			if err := json.Unmarshal(v, &items); err != nil {
				return nil, err
			}
		}
		for _, item := range items {
			text, err := asText(item)
			if err != nil {
				return nil, t.refuse(t.parts[0], err.Error())
			}
			argv = append(argv, text)
		}
	}
	if c.shell == "" && (len(argv) == 0 || argv[0] == "") {
		return nil, node.Permanent(errors.New("config/argv: it names no program"))
	}
	return argv, nil
}

// stored keeps output storable whatever its bytes.
func (c *command) stored(output []byte) string {
	if c.base64 {
		return base64.StdEncoding.EncodeToString(output)
	}
	return asUTF8(output)
}

// asUTF8 replaces each byte that is not UTF-8 by U+FFFD.
func asUTF8(raw []byte) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	return string([]rune(string(raw)))
}

// maxTail bounds what a failure keeps of an output, in bytes.
const maxTail = 4 << 10

// tail is the end of an output as text.
func tail(output []byte) string {
	if len(output) > maxTail {
		output = output[len(output)-maxTail:]
		for len(output) > 0 && !utf8.RuneStart(output[0]) {
			output = output[1:]
		}
	}
	return asUTF8(output)
}

// process is one command being run.
type process struct {
	argv, env []string
	dir       string
	stdin     *string
	maxOutput int

	stdout, stderr output
	exitCode       int // -1: ended by a signal
	state          *os.ProcessState
}

// grace is how long a process group that was asked to end may take, and how long its
// outputs may stay open after that.
var grace = 2 * time.Second

// run runs the process to its end, or to that of ctx.
func (p *process) run(ctx context.Context) error {
	if p.dir != "" {
		// Starting in a directory that is not there says that the program is not there.
		if _, err := os.Stat(p.dir); err != nil {
			return fmt.Errorf("the command's directory: %w", err)
		}
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(limited, p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env = p.dir, p.env
	group := isolate(cmd)
	var force *time.Timer
	cmd.Cancel = func() error {
		force = time.AfterFunc(grace, group.kill)
		group.terminate()
		return nil
	}

	// The pipes are this side's own, so that waiting for the command is not waiting for
	// whoever else holds its outputs.
	var pipes pipes
	defer pipes.close()
	if p.stdin != nil {
		if err := pipes.feed(&cmd.Stdin, *p.stdin); err != nil {
			return err
		}
	}
	overflow := func(o *output) { cancel(&value.LimitError{What: o.what, Size: o.size, Limit: p.maxOutput}) }
	p.stdout, p.stderr = output{what: "stdout", limit: p.maxOutput}, output{what: "stderr", limit: p.maxOutput}
	if err := errors.Join(pipes.drain(&cmd.Stdout, &p.stdout, overflow), pipes.drain(&cmd.Stderr, &p.stderr, overflow)); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	pipes.start()
	err := cmd.Wait()
	if force != nil {
		force.Stop()
	}
	group.sweep()
	pipes.wait(grace)

	var tooLarge *value.LimitError
	if errors.As(context.Cause(limited), &tooLarge) {
		return node.Permanent(tooLarge)
	}
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("the command was ended: %w", context.Cause(ctx))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	p.state = cmd.ProcessState
	p.exitCode = cmd.ProcessState.ExitCode()
	return nil
}

// ended says how the command ended, without what it was given or wrote.
func (p *process) ended() string {
	if p.exitCode < 0 {
		return fmt.Sprintf("the command was ended from outside (%s)", p.state)
	}
	return fmt.Sprintf("the command ended with exit code %d", p.exitCode)
}
