package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Machine has the fields of a Machine that this program's informer reads.
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ProviderID string `json:"providerID,omitempty"`
	} `json:"spec"`
	Status struct {
		Phase   string `json:"phase,omitempty"`
		NodeRef struct {
			Name string `json:"name,omitempty"`
		} `json:"nodeRef"`
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status"`
}

// MachineList is a list of Machines.
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Machine `json:"items"`
}

// DeepCopyObject is what runtime.Object asks for.
func (machine *Machine) DeepCopyObject() runtime.Object {
	copied := *machine
	machine.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Status.Conditions = append([]metav1.Condition(nil), machine.Status.Conditions...)
	return &copied
}

// DeepCopyObject is what runtime.Object asks for.
func (list *MachineList) DeepCopyObject() runtime.Object {
	copied := *list
	copied.Items = make([]Machine, len(list.Items))
	for index := range list.Items {
		copied.Items[index] = *list.Items[index].DeepCopyObject().(*Machine)
	}
	return &copied
}
