module sealpost.example/lazyfs

go 1.19

require github.com/hanwen/go-fuse/v2 v2.3.0

require golang.org/x/sys v0.0.0-20220520151302-bc2c85ada10a // indirect
