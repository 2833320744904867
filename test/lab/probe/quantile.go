package probe

import (
	"math"
	"slices"
	"time"
)

// Quantile returns the smallest of values that the share q (0 to 1) of them does not exceed (nearest rank),
// so it is always one that was measured. It is 0 if there are no values. values is not changed.
func Quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
