# Run as root, as the first process of new mount, PID, IPC, UTS and cgroup namespaces. $ROOT is an empty directory, $FILES has what is to be in the
# root beside the machine's programs, $KMSG is a file for systemd's log, and the arguments are from:to, what of the machine is to be where.
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$ROOT"
cd "$ROOT"
cp -a "$FILES"/. .
mkdir -p usr etc proc sys dev run tmp var/lib var/tmp var/log old
mount -t tmpfs -o mode=755 tmpfs dev # systemd would mount the machine's own on what is no mount
mkdir dev/net dev/shm dev/pts
chmod 1777 tmp var/tmp dev/shm
for l in bin sbin lib lib64; do ln -s usr/$l $l; done
ln -s ../run var/run
mount --rbind /usr usr
mount -o remount,bind,ro usr
mount -t tmpfs -o mode=755 tmpfs usr/local/bin
mount -t proc proc proc
mount --bind proc/sys/fs proc/sys/fs
mount -o remount,bind,ro proc/sys/fs # systemd would set fs.file-max, which is the whole machine's
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for d in null zero full random urandom tty net/tun; do
	touch dev/$d
	mount --bind /dev/$d dev/$d
done
touch dev/kmsg
mount --bind "$KMSG" dev/kmsg
mount -t tmpfs -o mode=755 tmpfs run
cp -a /etc/passwd /etc/group /etc/alternatives etc
ln -s ../usr/lib/os-release etc/os-release
echo "$HOST" >etc/hostname
echo "$HOST" | md5sum | cut -c1-32 >etc/machine-id
for pair in "$@"; do
	from=${pair%%:*} to=.${pair#*:}
	if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "${to%/*}" && touch "$to"; fi
	mount --bind "$from" "$to"
done
pivot_root . old
umount -l old
rmdir old
exec env -i container=other PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin SYSTEMD_UNIT_PATH=/etc/systemd/system SYSTEMD_GENERATOR_PATH=/run/none \
	/usr/lib/systemd/systemd --system --log-target=kmsg --log-level=info --unit=multi-user.target
