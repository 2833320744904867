package sim

import (
	"fmt"
	"reflect"
)

// tableMost bounds every table of a core: records of all machines and strangers, or what it heard of each.
const tableMost = 4 * recordsMost

// grown returns the path of a map or slice below v that has more than most elements, and how many; "" for none. It follows pointers and interfaces, each pointer
// once, and passes over bytes, which are texts.
func grown(v reflect.Value, path string, most int, been map[uintptr]bool) (where string, n int) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || been[v.Pointer()] {
			return "", 0
		}
		been[v.Pointer()] = true
		return grown(v.Elem(), path, most, been)
	case reflect.Interface:
		if !v.IsNil() {
			return grown(v.Elem(), path, most, been)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if where, n = grown(v.Field(i), path+"."+v.Type().Field(i).Name, most, been); where != "" {
				return where, n
			}
		}
	case reflect.Map:
		if v.Len() > most {
			return path, v.Len()
		}
		for i := v.MapRange(); i.Next(); {
			if where, n = grown(i.Value(), path+"[]", most, been); where != "" {
				return where, n
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return "", 0
		}
		if v.Len() > most && v.Kind() == reflect.Slice {
			return path, v.Len()
		}
		for i := range v.Len() {
			if where, n = grown(v.Index(i), path+"[]", most, been); where != "" {
				return where, n
			}
		}
	default: // has no elements
	}
	return "", 0
}

// growth checks that no table of a machine's core, or of its life in Kubernetes, has grown without a bound.
func (c *Cluster) growth(m *machine) {
	p := m.process
	if p == nil {
		return
	}
	for name, of := range map[string]any{"core": p.core, "life": p.life} {
		if where, n := grown(reflect.ValueOf(of), name, tableMost, map[uintptr]bool{}); where != "" {
			c.fail("nothing grows", "m%d has %s with %s elements", m.index, where, fmt.Sprint(n))
		}
	}
}
