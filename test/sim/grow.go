package sim

import "reflect"

// tableMost bounds every table of a core: records of all machines and strangers, or what it heard of each.
const tableMost = 4 * recordsMost

// grown returns how many elements a map or slice below v has that has more than most, 0 if there is none, and
// its path below v. It follows pointers and interfaces, each pointer once, and passes over bytes, which are
// texts. It runs after each step, so the path is made only once something is found.
func grown(v reflect.Value, most int, been map[uintptr]bool) (n int, where string) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || been[v.Pointer()] {
			return 0, ""
		}
		been[v.Pointer()] = true
		return grown(v.Elem(), most, been)
	case reflect.Interface:
		if !v.IsNil() {
			return grown(v.Elem(), most, been)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if n, where = grown(v.Field(i), most, been); n > 0 {
				return n, "." + v.Type().Field(i).Name + where
			}
		}
	case reflect.Map:
		if v.Len() > most {
			return v.Len(), ""
		}
		for i := v.MapRange(); i.Next(); {
			if n, where = grown(i.Value(), most, been); n > 0 {
				return n, "[]" + where
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0, ""
		}
		if v.Len() > most && v.Kind() == reflect.Slice {
			return v.Len(), ""
		}
		for i := range v.Len() {
			if n, where = grown(v.Index(i), most, been); n > 0 {
				return n, "[]" + where
			}
		}
	default: // has no elements
	}
	return 0, ""
}

// growth checks that no table of a machine's core, or of its life in Kubernetes, has grown without a bound.
func (c *Cluster) growth(m *machine) {
	p := m.process
	if p == nil || p.core == nil {
		return
	}
	if n, where := grown(reflect.ValueOf(p.core), tableMost, map[uintptr]bool{}); n > 0 {
		c.fail("nothing grows", "m%d has core%s with %d elements", m.index, where, n)
	}
}
