// Package checks holds what the programs for Go share.
package checks

import (
	"log"
	"strings"
)

// RunsMax is how often a transaction or a request that the server has aborted is sent.
const RunsMax = 10

// Check ends the program, and says what was found, unless the condition holds.
func Check(holds bool, found ...any) {
	if !holds {
		log.Panic(found...)
	}
}

// Must returns the value of a call that may not fail.
func Must[T any](value T, err error) T {
	Check(err == nil, err)
	return value
}

// Fails checks that a call failed with this text: the clients keep nothing else of an error.
func Fails(err error, text string) {
	Check(err != nil && strings.Contains(err.Error(), text), "an error with ", text, ": ", err)
}
