package hostrules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The kernel does not print a rule back as it was written: it adds attributes that have their defaults, numbers registers
// otherwise, and counts. This file brings rules, as they are written and as they are read, into one form, which is equal if the
// rules are.

// form says what an attribute of an expression is.
type form uint8

const (
	_            form = iota
	formNumber        // big endian; 0 is the default, as if it were missing
	formRegister      // has two numberings
	formData          // a value, or a verdict
	formIgnored       // a count, a padding, or what only names something within one transaction
)

// forms are the attributes of the expressions that our rules have.
func forms(expression string) map[uint16]form {
	switch expression {
	case "meta":
		return map[uint16]form{unix.NFTA_META_DREG: formRegister, unix.NFTA_META_KEY: formNumber}
	case "cmp":
		return map[uint16]form{unix.NFTA_CMP_SREG: formRegister, unix.NFTA_CMP_OP: formNumber, unix.NFTA_CMP_DATA: formData}
	case "payload":
		return map[uint16]form{unix.NFTA_PAYLOAD_DREG: formRegister, unix.NFTA_PAYLOAD_BASE: formNumber, unix.NFTA_PAYLOAD_OFFSET: formNumber,
			unix.NFTA_PAYLOAD_LEN: formNumber}
	case "bitwise":
		const operation = 6 // NFTA_BITWISE_OP, since Linux 5.6; 0 is the only one before
		return map[uint16]form{unix.NFTA_BITWISE_SREG: formRegister, unix.NFTA_BITWISE_DREG: formRegister, unix.NFTA_BITWISE_LEN: formNumber,
			unix.NFTA_BITWISE_MASK: formData, unix.NFTA_BITWISE_XOR: formData, operation: formNumber}
	case "lookup":
		return map[uint16]form{unix.NFTA_LOOKUP_SREG: formRegister, unix.NFTA_LOOKUP_SET_ID: formIgnored, unix.NFTA_LOOKUP_FLAGS: formNumber}
	case "counter":
		return map[uint16]form{unix.NFTA_COUNTER_BYTES: formIgnored, unix.NFTA_COUNTER_PACKETS: formIgnored, unix.NFTA_COUNTER_PAD: formIgnored}
	case "immediate":
		return map[uint16]form{unix.NFTA_IMMEDIATE_DREG: formRegister, unix.NFTA_IMMEDIATE_DATA: formData}
	case "masq":
		return map[uint16]form{unix.NFTA_MASQ_FLAGS: formNumber}
	}
	return nil
}

// formOf is a rule's form: its expressions, each an attribute of the list, and its comment as raw user data.
func formOf(expressions []byte, comment string) string {
	var w strings.Builder
	eachAttr(expressions, func(_ uint16, e []byte) {
		w.WriteString(expressionForm(e))
		w.WriteByte('\n')
	})
	fmt.Fprintf(&w, "%x", comment)
	return w.String()
}

// formOfWritten is the form of a rule that is to be written.
func formOfWritten(family uint8, all []expr.Any, comment []byte) (string, error) {
	var w strings.Builder
	for _, e := range all {
		b, err := expr.Marshal(family, e)
		if err != nil {
			return "", fmt.Errorf("nftables expression: %w", err)
		}
		w.WriteString(expressionForm(b))
		w.WriteByte('\n')
	}
	fmt.Fprintf(&w, "%x", comment)
	return w.String(), nil
}

// expressionForm is an expression's name with those of its attributes that are not at their defaults. What is not known is there
// as bytes, so that it is equal to nothing of ours.
func expressionForm(e []byte) string {
	name, data := "", []byte(nil)
	eachAttr(e, func(kind uint16, v []byte) {
		switch kind {
		case unix.NFTA_EXPR_NAME:
			name = cString(v)
		case unix.NFTA_EXPR_DATA:
			data = v
		}
	})
	known := forms(name)
	var words []string
	eachAttr(data, func(kind uint16, v []byte) {
		word := ""
		switch f := known[kind]; {
		case f == formIgnored:
			return
		case f == formNumber && len(v) == 4:
			if word = fmt.Sprint(be32(v)); word == "0" {
				return
			}
		case f == formRegister && len(v) == 4:
			word = fmt.Sprint("at ", place(be32(v)))
		case f == formData:
			word = dataForm(v)
		default:
			word = fmt.Sprintf("%x", v)
		}
		words = append(words, fmt.Sprintf("%d=%s", kind, word))
	})
	slices.Sort(words)
	return name + " " + strings.Join(words, " ")
}

// dataForm is what NFTA_*_DATA holds.
func dataForm(v []byte) string {
	a := attrsOf(v)
	if verdict := a[unix.NFTA_DATA_VERDICT]; verdict != nil {
		x := attrsOf(verdict)
		return fmt.Sprintf("verdict %d %s", int32(be32(x[unix.NFTA_VERDICT_CODE])), cString(x[unix.NFTA_VERDICT_CHAIN]))
	}
	return fmt.Sprintf("%x", a[unix.NFTA_DATA_VALUE])
}
