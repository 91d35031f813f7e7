// Command kube-scheduler is the unmodified Kubernetes component of that name. The Kubernetes module
// publishes packages, not binaries, so this main stands in for its own.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand()))
}
