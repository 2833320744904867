package underlay

import (
	"weft/routing/internal/kernel"
)

// ReadDevices reads what the link numbered index, and those under it, do for datagrams.
func ReadDevices(k *kernel.Kernel, index int) Devices {
	links, err := linksBelow(k, index)
	if err != nil {
		return Devices{Unknown: err.Error()}
	}
	indices := make([]int, len(links))
	for i, l := range links {
		indices[i] = l.Index
	}
	active, err := k.Features(indices...)
	if err != nil {
		return Devices{Unknown: err.Error()}
	}
	var d Devices
	for i, l := range links {
		d.List = append(d.List, Device{l.Index, l.Name, featuresOf(active[i])})
	}
	return d
}

// linksBelow is below, without a listing of all links where nothing is under this one.
func linksBelow(k *kernel.Kernel, index int) ([]kernel.Device, error) {
	l, err := k.DeviceAt(index)
	if err != nil {
		return nil, err
	}
	if l.Parent == 0 && !joins(l.Kind) {
		return []kernel.Device{l}, nil
	}
	all, err := k.Devices()
	return below(all, index), err
}
