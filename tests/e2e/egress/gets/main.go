// Fetches addresses with Go's net/http as it is, over one connection if it can, and prints for each the
// protocol and the body.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	for _, address := range os.Args[1:] {
		response, err := http.Post(address, "text/plain", strings.NewReader("text"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(response.Proto, string(body))
	}
}
