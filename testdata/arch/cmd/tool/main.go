package main

import (
	"fmt"
	"os"

	"github.com/belay-run/belay/backend/sqlite"
)

func main() {
	fmt.Println(sqlite.Open)
	os.Exit(1)
}
