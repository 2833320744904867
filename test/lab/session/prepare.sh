# Run as root, as the first process of new mount, UTS and PID namespaces. $HOST is the host's name, $USERS are name:id, and the arguments are programs.
hostname "$HOST"
mount --make-rprivate /
mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t tmpfs -o mode=755 tmpfs /srv
mkdir /srv/bin /srv/etc /srv/dev
for p in "$@"; do
	touch /srv/bin/"${p##*/}"
	mount --bind "$p" /srv/bin/"${p##*/}"
done

# As udev makes them. Others than root open them on every distribution.
mknod -m 666 /srv/dev/tun c 10 200
mknod -m 666 /srv/dev/fuse c 10 229
mount --bind /srv/dev/tun /dev/net/tun
[ ! -e /dev/fuse ] || mount --bind /srv/dev/fuse /dev/fuse

mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir /run/user
cp /etc/passwd /etc/group /srv/etc
: >/srv/etc/subid
first=100000
for u in $USERS; do
	name=${u%:*} id=${u#*:}
	echo "$name:x:$id:$id::/srv/$name:/bin/sh" >>/srv/etc/passwd
	echo "$name:x:$id:" >>/srv/etc/group
	echo "$name:$first:65536" >>/srv/etc/subid
	first=$((first + 65536))
	mkdir -m 700 "/srv/$name" "/run/user/$id"
	chown "$id:$id" "/srv/$name" "/run/user/$id"
done
mount --bind /srv/etc/passwd /etc/passwd
mount --bind /srv/etc/group /etc/group
echo "$HOST" | md5sum | cut -c1-32 >/srv/etc/machine-id
[ ! -e /etc/machine-id ] || mount --bind /srv/etc/machine-id /etc/machine-id
for f in /etc/subuid /etc/subgid; do # the package uidmap makes them
	[ ! -e $f ] || mount --bind /srv/etc/subid $f
done

# Where cgroups are of version 1, or of both, crun starts nothing for an ordinary user.
[ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --make-rshared / # as systemd does

# A process whose parent ends becomes this one's, which is nobody's and reaps without looking.
trap '' CHLD
echo ready
exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --pdeathsig KILL sleep infinity
