package custody

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A message is one packet of a Unix socket of type SOCK_SEQPACKET: a header of ten bytes, the name and the body, and nothing
// behind. Descriptors come beside it, by SCM_RIGHTS. Each request has one answer, in order.
//
//	0  2  'W' 'K'
//	2  1  version
//	3  1  verb
//	4  2  length of the name, big endian
//	6  4  length of the body, big endian
type message struct {
	verb verb
	name string
	body []byte
}

// protocolVersion is of the layout above and of what the verbs mean. A holder refuses another one with its own in the
// header, so that a later weftd can speak to an earlier holder.
const protocolVersion = 1

type verb byte

// Requests. All but look and end are refused before a hello.
const (
	hello  verb = 1 + iota // name: whose descriptors are kept; from now on a weftd is there. Answer: done with a report
	keep                   // name, body: an Item, with its descriptors, in the place of one of the same name. Answer: done
	forget                 // name. Answer: done, also if there was none
	next                   // name: the Item that follows it in order of names, "" for the first. Answer: given, or done if there is none
	look                   // Answer: done with a report
	end                    // drop everything and end. Answer: done with a report of what was there
)

// Answers.
const (
	done    verb = 0x80 + iota // body: a report, or nothing
	given                      // name, body: an Item, with its descriptors
	refused                    // body: a sentence that says why
)

const (
	headerSize = 10
	maxMessage = headerSize + MaxName + MaxMeta
)

// errMalformed is of a message that no weftd sends.
var errMalformed = errors.New("malformed message")

// errStranger refuses what only the connection may ask for that said hello last.
var errStranger = errors.New("say hello first")

func (m message) bytes() []byte {
	b := append(make([]byte, 0, headerSize+len(m.name)+len(m.body)), 'W', 'K', protocolVersion, byte(m.verb))
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.name)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.body)))
	b = append(b, m.name...)
	return append(b, m.body...)
}

// parseMessage reads a whole packet. The body aliases b.
func parseMessage(b []byte) (message, error) {
	if len(b) < headerSize || b[0] != 'W' || b[1] != 'K' {
		return message{}, errMalformed
	}
	if b[2] != protocolVersion {
		return message{}, fmt.Errorf("version %d of the holder's protocol, where this is %d", b[2], protocolVersion)
	}
	name, body := int(binary.BigEndian.Uint16(b[4:])), binary.BigEndian.Uint32(b[6:])
	rest := b[headerSize:]
	if name > MaxName || body > MaxMeta || len(rest) != name+int(body) {
		return message{}, errMalformed
	}
	return message{verb: verb(b[3]), name: string(rest[:name]), body: rest[name:]}, nil
}
