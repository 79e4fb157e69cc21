package sqlite

import "time"

var testClock = time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)
