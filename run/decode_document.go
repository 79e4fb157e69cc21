package run

// document reads the members that a document of the format may have.
func (r *decoder) document(format int) *Document {
	d := &Document{}
	r.object(func(name []byte) bool {
		switch string(name) {
		case "id":
			d.ID = r.text()
		case "graph":
			r.object(func(name []byte) bool {
				switch string(name) {
				case "id":
					d.Graph.ID = r.text()
				case "hash":
					d.Graph.Hash = r.text()
				default:
					return false
				}
				return true
			})
		case "lineage":
			if format < 2 {
				return false
			}
			d.Lineage = list(r, (*decoder).ancestor)
		case "status":
			d.Status = Status(r.text())
		case "step":
			d.Step = r.int()
		case "seq":
			d.Seq = r.int()
		case "event_seq":
			d.EventSeq = r.int()
		case "started_at":
			d.StartedAt = r.time()
		case "updated_at":
			d.UpdatedAt = r.time()
		case "finished_at":
			d.FinishedAt = r.time()
		case "reason":
			d.Reason = r.text()
		case "failure":
			d.Failure = r.failure()
		case "output":
			d.Output = r.value()
		case "input":
			d.Input = members(r, (*decoder).channel)
		case "state":
			d.State = members(r, (*decoder).channel)
		case "changed":
			d.Changed = list(r, (*decoder).text)
		case "pending":
			d.Pending = list(r, (*decoder).text)
		case "renamed":
			if format < 2 {
				return false
			}
			d.Renamed = members(r, (*decoder).renaming)
		case "completed":
			d.Completed = members(r, (*decoder).nodeCount)
		case "edges":
			d.Edges = members(r, (*decoder).edgeCount)
		case "barriers":
			d.Barriers = members(r, (*decoder).barrier)
		case "tasks":
			d.Tasks = list(r, (*decoder).task)
		case "writes":
			d.Writes = list(r, (*decoder).write)
		case "timers":
			d.Timers = list(r, (*decoder).timer)
		case "interrupts":
			d.Interrupts = list(r, (*decoder).interrupt)
		case "metadata":
			d.Metadata = r.metadata()
		default:
			return false
		}
		return true
	})
	return d
}

func (r *decoder) ancestor() (a Ancestor) {
	r.object(func(name []byte) bool {
		switch string(name) {
		case "hash":
			a.Hash = r.text()
		case "until":
			a.Until = r.int()
		default:
			return false
		}
		return true
	})
	return a
}

func (r *decoder) renaming(node string) Renaming { return Renaming{Node: node, Was: r.text()} }

func (r *decoder) metadata() map[string]string {
	var m map[string]string
	members(r, func(r *decoder, name string) struct{} {
		if m == nil {
			m = map[string]string{}
		}
		m[name] = r.text()
		return struct{}{}
	})
	return m
}

func (r *decoder) failure() *Failure {
	f := &Failure{}
	r.object(func(name []byte) bool {
		switch string(name) {
		case "code":
			f.Code = r.text()
		case "details":
			f.Details = r.value()
		case "message":
			f.Message = r.text()
		case "node":
			f.Node = r.text()
		default:
			return false
		}
		return true
	})
	return f
}

func (r *decoder) channel(name string) Channel {
	c := Channel{Name: name}
	r.object(func(name []byte) bool {
		switch string(name) {
		case "value":
			c.Value = r.value()
		case "version":
			c.Version = r.int()
		default:
			return false
		}
		return true
	})
	return c
}

func (r *decoder) nodeCount(node string) NodeCount { return NodeCount{Node: node, Count: r.int()} }

func (r *decoder) edgeCount(edge string) EdgeCount { return EdgeCount{Edge: edge, Fired: r.int()} }

func (r *decoder) barrier(edge string) Barrier {
	return Barrier{Edge: edge, Sources: list(r, (*decoder).text)}
}

func (r *decoder) task() (t Task) {
	r.object(func(name []byte) bool {
		switch string(name) {
		case "id":
			t.ID = r.text()
		case "node":
			t.Node = r.text()
		case "parked":
			t.Reason = ParkReason(r.text())
		case "failures":
			t.Failures = int(r.int())
		case "last_error":
			t.LastError = r.text()
		case "planned_at":
			t.PlannedAt = r.time()
		case "input_hash":
			t.InputHash = r.text()
		case "snapshot":
			t.Snapshot = members(r, (*decoder).channel)
		default:
			return false
		}
		return true
	})
	return t
}

func (r *decoder) write() (w Write) {
	r.object(func(name []byte) bool {
		switch string(name) {
		case "node":
			w.Node = r.text()
		case "skipped":
			w.Skipped = r.true()
		case "reason":
			w.Reason = r.text()
		case "update":
			w.Update = members(r, (*decoder).channel)
		default:
			return false
		}
		return true
	})
	return w
}

func (r *decoder) timer() (t Timer) {
	r.object(func(name []byte) bool {
		switch string(name) {
		case "kind":
			t.Kind = TimerKind(r.text())
		case "key":
			t.Key = r.text()
		case "at":
			t.At = r.time()
		default:
			return false
		}
		return true
	})
	return t
}

func (r *decoder) interrupt() (i Interrupt) {
	r.object(func(name []byte) bool {
		switch string(name) {
		case "id":
			i.ID = r.text()
		case "node":
			i.Node = r.text()
		case "status":
			i.Status = InterruptStatus(r.text())
		case "requested_at":
			i.RequestedAt = r.time()
		case "resolved_at":
			i.ResolvedAt = r.time()
		case "deadline":
			i.Deadline = r.time()
		case "field":
			i.Field = r.text()
		case "question":
			i.Question = r.value()
		case "schema":
			i.Schema = r.value()
		case "default":
			i.Default = r.value()
		case "answer":
			i.Answer = r.value()
		default:
			return false
		}
		return true
	})
	return i
}
