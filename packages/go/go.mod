// A reserved name until the module has an address: `go mod edit -replace` leads to where it was unpacked.
module sealpost.example/receiver

go 1.19
