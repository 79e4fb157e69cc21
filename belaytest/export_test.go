package belaytest

// LimitWakes lets a test of this package see the bound on wakes without going up to it.
func (e *Engine) LimitWakes(n int) { e.wakes = n }
