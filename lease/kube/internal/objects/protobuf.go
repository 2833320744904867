package objects

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ErrProtobuf says that bytes are not a protobuf message of the kind wanted.
var ErrProtobuf = errors.New("not a protobuf message")

// Reset implements the unmarshaler of apimachinery's protobuf serializer.
func (n *Node) Reset() { *n = Node{} }

// Reset is that of a Node.
func (l *NodeList) Reset() { *l = NodeList{} }

// Reset is that of a Node.
func (p *Pod) Reset() { *p = Pod{} }

// Unmarshal adds what b says to n. The numbers of fields here and below are those of
// k8s.io/api/core/v1/generated.proto and k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto.
// The error wraps ErrProtobuf.
func (n *Node) Unmarshal(b []byte) error {
	return fields(b, func(number protowire.Number, v []byte) error {
		switch number {
		case 1:
			return unmarshalMeta(&n.ObjectMeta, v)
		case 2:
			return n.Spec.unmarshal(v)
		case 3:
			return n.Status.unmarshal(v)
		}
		return nil
	})
}

// Unmarshal adds what b says to l. The error wraps ErrProtobuf.
func (l *NodeList) Unmarshal(b []byte) error {
	return fields(b, func(number protowire.Number, v []byte) error {
		switch number {
		case 1:
			return unmarshalListMeta(&l.ListMeta, v)
		case 2:
			l.Items = append(l.Items, Node{})
			return l.Items[len(l.Items)-1].Unmarshal(v)
		}
		return nil
	})
}

// Unmarshal adds what b says to p. The error wraps ErrProtobuf.
func (p *Pod) Unmarshal(b []byte) error {
	return fields(b, func(number protowire.Number, v []byte) error {
		switch number {
		case 1:
			return unmarshalMeta(&p.ObjectMeta, v)
		case 2:
			return fields(v, func(number protowire.Number, v []byte) error {
				if number == 10 {
					p.Spec.NodeName = string(v)
				}
				return nil
			})
		}
		return nil
	})
}

func (s *NodeSpec) unmarshal(b []byte) error {
	return fields(b, func(number protowire.Number, v []byte) error {
		switch number {
		case 1:
			s.PodCIDR = string(v)
		case 7:
			s.PodCIDRs = append(s.PodCIDRs, string(v))
		}
		return nil
	})
}

func (s *NodeStatus) unmarshal(b []byte) error {
	return fields(b, func(number protowire.Number, v []byte) error {
		if number != 4 {
			return nil
		}
		s.Conditions = append(s.Conditions, NodeCondition{})
		return s.Conditions[len(s.Conditions)-1].unmarshal(v)
	})
}

func (c *NodeCondition) unmarshal(b []byte) error {
	return fields(b, func(number protowire.Number, v []byte) error {
		switch number {
		case 1:
			c.Type = string(v)
		case 2:
			c.Status = string(v)
		case 3:
			return unmarshalTime(&c.LastHeartbeatTime, v)
		case 4:
			return unmarshalTime(&c.LastTransitionTime, v)
		case 5:
			c.Reason = string(v)
		case 6:
			c.Message = string(v)
		}
		return nil
	})
}

func unmarshalTime(t *metav1.Time, b []byte) error {
	if err := t.Unmarshal(b); err != nil {
		return fmt.Errorf("%w: time: %w", ErrProtobuf, err)
	}
	return nil
}

func unmarshalMeta(m *metav1.ObjectMeta, b []byte) error {
	return fields(b, func(number protowire.Number, v []byte) error {
		switch number {
		case 1:
			m.Name = string(v)
		case 5:
			m.UID = types.UID(v)
		case 6:
			m.ResourceVersion = string(v)
		case 8:
			return unmarshalTime(&m.CreationTimestamp, v)
		case 12:
			return unmarshalAnnotation(m, v)
		}
		return nil
	})
}

func unmarshalAnnotation(m *metav1.ObjectMeta, b []byte) error {
	var key, value string
	err := fields(b, func(number protowire.Number, v []byte) error {
		switch number {
		case 1:
			key = string(v)
		case 2:
			value = string(v)
		}
		return nil
	})
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[key] = value
	return err
}

func unmarshalListMeta(m *metav1.ListMeta, b []byte) error {
	return fields(b, func(number protowire.Number, v []byte) error {
		switch number {
		case 2:
			m.ResourceVersion = string(v)
		case 3:
			m.Continue = string(v)
		}
		return nil
	})
}

// fields calls f for each field of a message that has a length: text, bytes and messages. It skips
// the others. borrowed: v belongs to b.
func fields(b []byte, f func(number protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: tag: %w", ErrProtobuf, protowire.ParseError(n))
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return fmt.Errorf("%w: field %d: %w", ErrProtobuf, number, protowire.ParseError(n))
		}
		if kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			if err := f(number, v); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}
