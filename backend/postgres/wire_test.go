package postgres_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/belay-run/belay/internal/pgtest"
)

// fault is what the proxy does once.
type fault struct {
	// after counts the statements that pass before it.
	after int
	// code: the statement does not reach the server, and fails with this SQLSTATE.
	code string
	// answered: the statement reaches the server, and the connection is cut when its
	// CommandComplete has been seen and nothing of its answer was passed on. Without a code
	// and this the connection is cut instead of passing the statement on.
	answered bool
	// settled: it is cut no sooner than the server has said that it is ready again.
	settled bool
}

// proxy passes on what a client and the server say to each other, message by message.
type proxy struct {
	listener net.Listener

	mu    sync.Mutex
	armed *fault
	fired bool
	count int // of faults that came about
	conns map[net.Conn]bool
	// each, when set, says what a statement meets while nothing is armed.
	each func() *fault
	// renewals: those of plans are statements, too. They come when their time has come, and where statements
	// are counted they would come between.
	renewals bool
	// broken are the connections that were cut, as long as the server may still do what it was
	// asked over them.
	broken sync.WaitGroup
}

// settle takes back a fault that has not come about, and waits until the server has ended what it
// was doing for connections that were cut.
func (p *proxy) settle() {
	p.disarm()
	p.broken.Wait()
}

func (p *proxy) troubles() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// breaks makes a connection break at one of the next statements, before or after it took effect.
func (p *proxy) breaks(draw func(int) int) {
	kind := draw(3)
	p.arm(fault{after: draw(4), answered: kind > 0, settled: kind > 1})
}

// newProxy is a proxy to the server of the tests, and how to reach it.
func newProxy(t *testing.T) (*proxy, string) { t.Helper(); return newProxyTo(t, pgtest.DSN(t)) }

func newProxyTo(t *testing.T, to string) (*proxy, string) {
	t.Helper()
	dsn, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(dsn.String())
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{conns: make(map[net.Conn]bool)}
	network, address := "tcp", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	if filepath.IsAbs(config.Host) {
		network, address = "unix", filepath.Join(config.Host, ".s.PGSQL."+strconv.Itoa(int(config.Port)))
	}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := p.listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(network, address, client) })
		}
	})
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		serving.Wait()
	})
	query := dsn.Query()
	query.Del("host")
	query.Set("sslmode", "disable")
	dsn.Host, dsn.RawQuery = p.listener.Addr().String(), query.Encode()
	return p, dsn.String()
}

// arm sets the fault for the next statements.
func (p *proxy) arm(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.fired = &f, false
}

// disarm reports whether the fault came about.
func (p *proxy) disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
	return p.fired
}

// next is the fault that the next statement meets, once.
func (p *proxy) next() *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	var f *fault
	switch {
	case p.armed == nil && p.each != nil:
		f = p.each()
	case p.armed != nil && p.armed.after > 0:
		p.armed.after--
	case p.armed != nil:
		f, p.armed, p.fired = p.armed, nil, true
	}
	if f == nil {
		return nil
	}
	p.count++
	if f.code == "" {
		p.broken.Add(1)
	}
	return f
}

// cut is the state of one connection: what happens to the statement under way.
type cut struct {
	mu    sync.Mutex
	fault *fault
	seen  bool
	// broken: the connection is the one that a fault cuts.
	broken bool
	// undone, when set, takes the end of the answer to the proxy's own rollback.
	undone chan struct{}
}

// undo rolls back what the server has open, as a statement that fails would.
func (c *cut) undo(server net.Conn) error {
	undone := make(chan struct{})
	c.mu.Lock()
	c.undone = undone
	c.mu.Unlock()
	rollback, err := (&pgproto3.Query{String: "rollback"}).Encode(nil)
	if err != nil {
		return err
	}
	if _, err := server.Write(rollback); err != nil {
		return err
	}
	<-undone
	return nil
}

func (p *proxy) serve(network, address string, client net.Conn) {
	server, err := net.Dial(network, address)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	defer server.Close()
	var c cut
	var back sync.WaitGroup
	back.Go(func() {
		defer client.Close()
		_ = c.answers(client, server)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.undone != nil { // the server is gone
			close(c.undone)
			c.undone = nil
		}
	})
	_ = p.requests(&c, client, server)
	_ = client.Close()
	if half, ok := server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	back.Wait()
	// The server ends the session when it has done what it was asked, or undone it.
	_, _ = io.Copy(io.Discard, server)
	if c.broken {
		p.broken.Done()
	}
}

var errCut = errors.New("cut")

// requests passes on what the client says. A statement is executed by Execute or Query;
// what prepares it passes.
func (p *proxy) requests(c *cut, client, server net.Conn) error {
	startup, err := message(client, false)
	if err != nil {
		return err
	}
	if _, err := server.Write(startup); err != nil {
		return err
	}
	var batch []byte
	executes := false
	for {
		m, err := message(client, true)
		if err != nil {
			return err
		}
		batch = append(batch, m...)
		executes = executes || m[0] == 'E' || m[0] == 'Q' && (p.renewals || !strings.HasPrefix(string(m[5:]), "discard plans"))
		if m[0] != 'S' && m[0] != 'Q' && m[0] != 'X' && m[0] != 'p' {
			continue
		}
		if executes {
			f := p.next()
			c.broken = c.broken || f != nil && f.code == ""
			switch {
			case f == nil:
			case f.code != "":
				refusal, err := (&pgproto3.ErrorResponse{Severity: "ERROR", Code: f.code, Message: "injected"}).Encode(nil)
				if err != nil {
					return err
				}
				if refusal, err = (&pgproto3.ReadyForQuery{TxStatus: 'I'}).Encode(refusal); err != nil {
					return err
				}
				if err := c.undo(server); err != nil {
					return err
				}
				if _, err := client.Write(refusal); err != nil {
					return err
				}
				batch, executes = nil, false
				continue
			case f.answered:
				c.mu.Lock()
				c.fault = f
				c.mu.Unlock()
			default:
				return errCut
			}
		}
		if _, err := server.Write(batch); err != nil {
			return err
		}
		batch, executes = nil, false
	}
}

// answers passes on what the server says.
func (c *cut) answers(client, server net.Conn) error {
	for {
		m, err := message(server, true)
		if err != nil {
			return err
		}
		c.mu.Lock()
		f, undone := c.fault, c.undone
		if undone != nil && m[0] == 'Z' {
			c.undone = nil
			close(undone)
		}
		c.mu.Unlock()
		if undone != nil {
			continue
		}
		if f == nil {
			if _, err := client.Write(m); err != nil {
				return err
			}
			continue
		}
		c.seen = c.seen || m[0] == 'C'
		if c.seen && (!f.settled || m[0] == 'Z') {
			return errCut
		}
	}
}

// message reads one message, with its type or (the first of a client) without.
func message(from io.Reader, typed bool) ([]byte, error) {
	n := 4
	if typed {
		n = 5
	}
	m := make([]byte, n)
	if _, err := io.ReadFull(from, m); err != nil {
		return nil, err
	}
	rest := make([]byte, binary.BigEndian.Uint32(m[n-4:])-4)
	if _, err := io.ReadFull(from, rest); err != nil {
		return nil, err
	}
	return append(m, rest...), nil
}
