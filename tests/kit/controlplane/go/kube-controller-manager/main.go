// Command kube-controller-manager is the unmodified Kubernetes component of that name. The Kubernetes module
// publishes packages, not binaries, so this main stands in for its own.
package main

import (
	"os"
	_ "time/tzdata" // CronJob time zones, on machines without a zone database

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	os.Exit(cli.Run(app.NewControllerManagerCommand()))
}
