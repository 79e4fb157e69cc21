package lifecycle

import (
	"log"

	"github.com/belay-run/belay/backend/memory" // want: lifecycle may not import backend/memory
	"github.com/belay-run/belay/lifecycle/internal/heap"
)

func start() {
	log.Fatal(memory.New, heap.New) // want: lifecycle is a library and may not use log.Fatal
}
