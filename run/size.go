package run

// Sizes are estimated before anything is encoded: most documents are far from
// every limit, and then need not be encoded to know it. A measure says how many
// bytes a byte of text may become.
type measure int

const (
	typical measure = 1 // text without escapes
	atMost  measure = 6 // every byte a control character
)

func (m measure) text(s string) int { return int(m)*len(s) + 2 }

// The fixed parts of one element: member names, punctuation, numbers, instants.
const (
	fixedDocument  = 768
	fixedElement   = 64
	fixedTask      = 256
	fixedInterrupt = 320
	fixedEvent     = 512
)

func (m measure) channels(cs []Channel) (n int) {
	for i := range cs {
		n += m.text(cs[i].Name) + len(cs[i].Value) + fixedElement
	}
	return n
}

func (m measure) names(names []string) (n int) {
	for _, s := range names {
		n += m.text(s) + 1
	}
	return n
}

func (m measure) failure(f *Failure) int {
	if f == nil {
		return 0
	}
	return m.text(f.Code) + m.text(f.Message) + m.text(f.Node) + len(f.Details) + fixedElement
}

// document is about the number of bytes Encode writes; with atMost, at least.
func (m measure) document(d *Document) int {
	n := fixedDocument + m.text(d.ID) + m.text(d.Graph.ID) + m.text(d.Graph.Hash) + m.text(d.Reason) +
		len(d.Output) + m.failure(d.Failure) + m.channels(d.Input) + m.channels(d.State) +
		m.names(d.Changed) + m.names(d.Pending)
	for i := range d.Lineage {
		n += m.text(d.Lineage[i].Hash) + fixedElement
	}
	for i := range d.Renamed {
		n += m.text(d.Renamed[i].Node) + m.text(d.Renamed[i].Was) + fixedElement
	}
	for i := range d.Completed {
		n += m.text(d.Completed[i].Node) + fixedElement
	}
	for i := range d.Edges {
		n += m.text(d.Edges[i].Edge) + fixedElement
	}
	for i := range d.Barriers {
		n += m.text(d.Barriers[i].Edge) + m.names(d.Barriers[i].Sources) + fixedElement
	}
	for i := range d.Tasks {
		t := &d.Tasks[i]
		n += m.text(t.ID) + m.text(t.Node) + m.text(t.LastError) + m.text(t.InputHash) + m.channels(t.Snapshot) + fixedTask
	}
	for i := range d.Writes {
		w := &d.Writes[i]
		n += m.text(w.Node) + m.text(w.Reason) + m.channels(w.Update) + fixedElement
	}
	for i := range d.Timers {
		n += m.text(d.Timers[i].Key) + fixedElement
	}
	for k := range d.Interrupts {
		i := &d.Interrupts[k]
		n += m.text(i.ID) + m.text(i.Node) + m.text(i.Field) + len(i.Question) + len(i.Schema) + len(i.Default) + len(i.Answer) + fixedInterrupt
	}
	for k, v := range d.Metadata {
		n += m.text(k) + m.text(v) + 2
	}
	return n
}

// event is about the number of bytes EncodeEvent writes; with atMost, at least.
func (m measure) event(e *Event) int {
	return fixedEvent + m.text(e.Run) + m.text(e.Node) + m.text(e.Task) + m.text(e.Edge) + m.text(e.Field) +
		m.text(e.Interrupt) + m.text(e.Reason) + m.failure(e.Failure) + len(e.Data)
}
