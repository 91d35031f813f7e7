// Command etcd is the unmodified etcd server, at the version that the Kubernetes module requires.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
