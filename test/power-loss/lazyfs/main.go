// Command lazyfs is a file system whose power can be cut.
//
// It keeps what was written and not yet synced apart from what was, as the page cache of a kernel does, and when it is
// told "cut" drops it: contents, sizes, new files, renames and deletions. What fsync of a file or of a directory
// promises, stays; like ext4 and XFS, fsync of a new file keeps its name, too. With "torn" a part of what was not synced
// survives all the same, in pages of 4 KiB, as a kernel may write back any page at any time.
//
//	lazyfs FOLDER     then, a line each on standard input: "cut [torn SEED]", "end"
//
// Everything is in memory. It says "mounted" when it can be used, also after a cut.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const pageBytes = 4096

// One lock for everything: what is measured here is not speed.
var (
	lock   sync.Mutex
	inodes uint64
)

// file is what lies on the disk under an inode, and beside it what only the memory has.
type file struct {
	ino      uint64
	mode     uint32
	uid, gid uint32
	modified time.Time
	target   string
	// Regular files: what is read, and what survives. Pages that differ, as far as is known.
	data, synced []byte
	dirty        map[int64]bool
	// Directories, the same.
	entries, syncedEntries map[string]*file
	// Where it is now; nil for one that was deleted, and for the root. And where it is found after a cut.
	parent, syncedParent *file
	name, syncedName     string
}

func smaller(one, other int64) int64 {
	if one < other {
		return one
	}
	return other
}

func newFile(mode uint32, uid, gid uint32) *file {
	inodes++
	made := &file{ino: inodes, mode: mode, uid: uid, gid: gid, modified: time.Now(), dirty: map[int64]bool{}}
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		made.entries, made.syncedEntries = map[string]*file{}, map[string]*file{}
	}
	return made
}

func (f *file) resize(size int64) {
	before := int64(len(f.data))
	for page := smaller(size, before) / pageBytes; page*pageBytes <= before || page*pageBytes <= size; page++ {
		f.dirty[page] = true
	}
	if size <= before {
		f.data = append([]byte(nil), f.data[:size]...)
		return
	}
	// With room for more.
	grown := make([]byte, size, 2*size)
	copy(grown, f.data)
	f.data = grown
}

func (f *file) write(data []byte, offset int64) {
	end := offset + int64(len(data))
	if end > int64(len(f.data)) {
		f.resize(end)
	}
	copy(f.data[offset:], data)
	for page := offset / pageBytes; page*pageBytes < end; page++ {
		f.dirty[page] = true
	}
	f.modified = time.Now()
}

// sync makes what is read what survives.
func (f *file) sync() {
	if f.entries != nil {
		for name, child := range f.syncedEntries {
			if f.entries[name] != child {
				delete(f.syncedEntries, name)
			}
		}
		for name, child := range f.entries {
			child.syncName(f, name)
		}
		return
	}
	if len(f.synced) != len(f.data) {
		resized := make([]byte, len(f.data))
		copy(resized, f.synced)
		f.synced = resized
	}
	for page := range f.dirty {
		f.keep(page)
	}
	f.dirty = map[int64]bool{}
	for one := f; one.parent != nil; one = one.parent {
		one.syncName(one.parent, one.name)
	}
}

// syncName makes it found there after a cut, and nowhere else: renaming is one step.
func (f *file) syncName(parent *file, name string) {
	if before := f.syncedParent; before != nil && before.syncedEntries[f.syncedName] == f {
		delete(before.syncedEntries, f.syncedName)
	}
	parent.syncedEntries[name] = f
	f.syncedParent, f.syncedName = parent, name
}

// keep writes one page back. The file gets as long as it has to be for that.
func (f *file) keep(page int64) {
	begin, end := page*pageBytes, smaller((page+1)*pageBytes, int64(len(f.data)))
	if begin >= end {
		return
	}
	if int64(len(f.synced)) < end {
		grown := make([]byte, end)
		copy(grown, f.synced)
		f.synced = grown
	}
	copy(f.synced[begin:end], f.data[begin:end])
}

// cut drops what was not synced, here and below. It counts files whose contents or names are not as they were.
func (f *file) cut(chance *rand.Rand, changed *int) {
	if f.entries == nil {
		if chance != nil {
			// In an order of their own: a map's is another each time.
			pages := make([]int64, 0, len(f.dirty))
			for page := range f.dirty {
				pages = append(pages, page)
			}
			sort.Slice(pages, func(a, b int) bool { return pages[a] < pages[b] })
			for _, page := range pages {
				if chance.Intn(2) == 0 {
					f.keep(page)
				}
			}
		}
		if string(f.data) != string(f.synced) {
			*changed++
		}
		f.data = append([]byte(nil), f.synced...)
		f.dirty = map[int64]bool{}
		return
	}
	for name := range f.entries {
		if f.syncedEntries[name] == nil {
			*changed++
		}
	}
	f.entries = map[string]*file{}
	names := make([]string, 0, len(f.syncedEntries))
	for name := range f.syncedEntries {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		child := f.syncedEntries[name]
		f.entries[name] = child
		child.parent, child.name = f, name
		child.cut(chance, changed)
	}
}

func (f *file) attributes(out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink = f.ino, f.mode, 1
	out.Uid, out.Gid = f.uid, f.gid
	out.Size = uint64(len(f.data) + len(f.target))
	out.Blocks, out.Blksize = (out.Size+511)/512, pageBytes
	out.SetTimes(&f.modified, &f.modified, &f.modified)
}

// node is what the kernel knows a file by.
type node struct {
	fs.Inode
	file *file
}

var _ = (fs.NodeLookuper)((*node)(nil))
var _ = (fs.NodeGetattrer)((*node)(nil))
var _ = (fs.NodeSetattrer)((*node)(nil))
var _ = (fs.NodeCreater)((*node)(nil))
var _ = (fs.NodeMkdirer)((*node)(nil))
var _ = (fs.NodeMknoder)((*node)(nil))
var _ = (fs.NodeSymlinker)((*node)(nil))
var _ = (fs.NodeReadlinker)((*node)(nil))
var _ = (fs.NodeUnlinker)((*node)(nil))
var _ = (fs.NodeRmdirer)((*node)(nil))
var _ = (fs.NodeRenamer)((*node)(nil))
var _ = (fs.NodeReaddirer)((*node)(nil))
var _ = (fs.NodeOpener)((*node)(nil))
var _ = (fs.NodeReader)((*node)(nil))
var _ = (fs.NodeWriter)((*node)(nil))
var _ = (fs.NodeFsyncer)((*node)(nil))
var _ = (fs.NodeAllocater)((*node)(nil))
var _ = (fs.NodeStatfser)((*node)(nil))

func (n *node) show(ctx context.Context, f *file, out *fuse.EntryOut) *fs.Inode {
	f.attributes(&out.Attr)
	return n.NewInode(ctx, &node{file: f}, fs.StableAttr{Mode: f.mode & syscall.S_IFMT, Ino: f.ino})
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	lock.Lock()
	defer lock.Unlock()
	found := n.file.entries[name]
	if found == nil {
		return nil, syscall.ENOENT
	}
	return n.show(ctx, found, out), 0
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	lock.Lock()
	defer lock.Unlock()
	n.file.attributes(&out.Attr)
	return 0
}

func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	lock.Lock()
	defer lock.Unlock()
	if mode, ok := in.GetMode(); ok {
		n.file.mode = n.file.mode&syscall.S_IFMT | mode&^uint32(syscall.S_IFMT)
	}
	if uid, ok := in.GetUID(); ok {
		n.file.uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		n.file.gid = gid
	}
	if modified, ok := in.GetMTime(); ok {
		n.file.modified = modified
	}
	if size, ok := in.GetSize(); ok {
		n.file.resize(int64(size))
	}
	n.file.attributes(&out.Attr)
	return 0
}

func (n *node) add(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, *file, syscall.Errno) {
	if n.file.entries[name] != nil {
		return nil, nil, syscall.EEXIST
	}
	var uid, gid uint32
	if caller, ok := fuse.FromContext(ctx); ok {
		uid, gid = caller.Uid, caller.Gid
	}
	made := newFile(mode, uid, gid)
	made.parent, made.name = n.file, name
	n.file.entries[name] = made
	return n.show(ctx, made, out), made, 0
}

func (n *node) Create(
	ctx context.Context, name string, _ uint32, mode uint32, out *fuse.EntryOut,
) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	lock.Lock()
	defer lock.Unlock()
	inode, _, errno := n.add(ctx, name, mode&^uint32(syscall.S_IFMT)|syscall.S_IFREG, out)
	return inode, nil, 0, errno
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	lock.Lock()
	defer lock.Unlock()
	inode, _, errno := n.add(ctx, name, mode&^uint32(syscall.S_IFMT)|syscall.S_IFDIR, out)
	return inode, errno
}

// Mknod makes sockets.
func (n *node) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	lock.Lock()
	defer lock.Unlock()
	inode, _, errno := n.add(ctx, name, mode, out)
	return inode, errno
}

func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	lock.Lock()
	defer lock.Unlock()
	inode, made, errno := n.add(ctx, name, syscall.S_IFLNK|0o777, out)
	if errno == 0 {
		made.target = target
	}
	return inode, errno
}

func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	lock.Lock()
	defer lock.Unlock()
	return []byte(n.file.target), 0
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	lock.Lock()
	defer lock.Unlock()
	found := n.file.entries[name]
	if found == nil {
		return syscall.ENOENT
	}
	delete(n.file.entries, name)
	found.parent = nil
	return 0
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	lock.Lock()
	found := n.file.entries[name]
	lock.Unlock()
	if found != nil && len(found.entries) > 0 {
		return syscall.ENOTEMPTY
	}
	return n.Unlink(ctx, name)
}

func (n *node) Rename(_ context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	lock.Lock()
	defer lock.Unlock()
	if flags != 0 {
		return syscall.EINVAL
	}
	moved, target := n.file.entries[name], to.(*node).file
	if moved == nil {
		return syscall.ENOENT
	}
	delete(n.file.entries, name)
	if replaced := target.entries[newName]; replaced != nil {
		replaced.parent = nil
	}
	target.entries[newName] = moved
	moved.parent, moved.name = target, newName
	return 0
}

func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	lock.Lock()
	defer lock.Unlock()
	list := make([]fuse.DirEntry, 0, len(n.file.entries))
	for name, child := range n.file.entries {
		list = append(list, fuse.DirEntry{Name: name, Ino: child.ino, Mode: child.mode & syscall.S_IFMT})
	}
	return fs.NewListDirStream(list), 0
}

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_TRUNC != 0 {
		lock.Lock()
		defer lock.Unlock()
		n.file.resize(0)
	}
	return nil, 0, 0
}

func (n *node) Read(_ context.Context, _ fs.FileHandle, into []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	lock.Lock()
	defer lock.Unlock()
	if offset >= int64(len(n.file.data)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(into[:copy(into, n.file.data[offset:])]), 0
}

func (n *node) Write(_ context.Context, _ fs.FileHandle, data []byte, offset int64) (uint32, syscall.Errno) {
	lock.Lock()
	defer lock.Unlock()
	n.file.write(data, offset)
	return uint32(len(data)), 0
}

func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	lock.Lock()
	defer lock.Unlock()
	n.file.sync()
	return 0
}

func (n *node) Allocate(_ context.Context, _ fs.FileHandle, offset, size uint64, mode uint32) syscall.Errno {
	lock.Lock()
	defer lock.Unlock()
	// Only as posix_fallocate does.
	if mode != 0 {
		return syscall.EOPNOTSUPP
	}
	if end := int64(offset + size); end > int64(len(n.file.data)) {
		n.file.resize(end)
	}
	return 0
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	out.Bsize, out.Frsize = pageBytes, pageBytes
	out.Blocks, out.Bfree, out.Bavail = 1<<24, 1<<23, 1<<23
	out.Files, out.Ffree, out.NameLen = 1<<20, 1<<19, 255
	return 0
}

func mount(folder string, root *file) (*fuse.Server, error) {
	kept := time.Second
	return fs.Mount(folder, &node{file: root}, &fs.Options{
		EntryTimeout:   &kept,
		AttrTimeout:    &kept,
		RootStableAttr: &fs.StableAttr{Ino: root.ino},
		MountOptions: fuse.MountOptions{
			AllowOther: os.Getuid() == 0, DirectMount: os.Getuid() == 0, FsName: "lazyfs", Name: "lazyfs", MaxWrite: 1 << 17,
		},
	})
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: lazyfs FOLDER")
		os.Exit(2)
	}
	folder := os.Args[1]
	// The library tells of requests that it does not know, of which kernels have new ones.
	log.SetOutput(io.Discard)
	root := newFile(syscall.S_IFDIR|0o777, uint32(os.Getuid()), uint32(os.Getgid()))
	server, err := mount(folder, root)
	if err != nil {
		fmt.Fprintf(os.Stderr, "no file system can be mounted here: %v\n", err)
		os.Exit(1)
	}
	fmt.Println("mounted")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "end" {
		words := strings.Fields(lines.Text())
		if err := unmount(server, folder); err != nil {
			fmt.Fprintf(os.Stderr, "somebody still uses it: %v\n", err)
			os.Exit(1)
		}
		var chance *rand.Rand
		if len(words) == 3 {
			seed, _ := strconv.ParseInt(words[2], 10, 64)
			chance = rand.New(rand.NewSource(seed))
		}
		changed := 0
		lock.Lock()
		root.cut(chance, &changed)
		lock.Unlock()
		fmt.Printf("lost %d\n", changed)
		if server, err = mount(folder, root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("mounted")
	}
	if err := unmount(server, folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// unmount waits for processes that were killed a moment ago.
func unmount(server *fuse.Server, folder string) (err error) {
	for tries := 0; tries < 200; tries++ {
		if os.Getuid() == 0 {
			err = syscall.Unmount(folder, 0)
		} else {
			err = server.Unmount()
		}
		if err == nil {
			server.Wait()
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}
