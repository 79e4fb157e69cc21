package main

import "fmt"

// p9 commits large documents.
func p9() row {
	r := row{id: "P9", work: "commits of large documents: five-node chains drained (PostgreSQL)"}
	for _, size := range []struct{ kilobytes, full, quick, slots, group int }{
		{16, 4_000, 400, 100, 25},
		{256, 250, 40, 32, 8},
	} {
		r.contests = append(r.contests, contest{
			name: fmt.Sprintf("%d KB", size.kilobytes),
			contestants: []contestant{
				{
					name: "belay", settings: fmt.Sprintf("Concurrency %d, pool of %d", size.slots, connections),
					run: drainBelay(size.full, size.quick, 5, size.kilobytes<<10, size.slots),
				},
				{
					name: "raw pgx", settings: fmt.Sprintf("%d connections, each claims %d and commits five times the same bytes", rawLanes, size.group),
					run: drainRaw(size.full, size.quick, 5, size.kilobytes<<10, size.group),
				},
			},
			targets: []target{{metric: "commits/s", against: "raw pgx", least: 0.7}},
		})
	}
	return r
}
