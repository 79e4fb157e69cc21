package std

import "time"

// SetGrace shortens how long a process group may take to end.
func SetGrace(d time.Duration) { grace = d }
