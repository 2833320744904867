//go:build race

package tunnel_test

const raceEnabled = true
