//! Relations within an object's own fields: its owner, its group, its Cluster, its infrastructure template. Nothing
//! here may look up another object.

use capi::{KindRef, Machine, ObjectKey, ScalableKind, ScalableResource};
use nodegroup::GroupId;

/// The kind and key of an infrastructure template.
pub(super) type TemplateKey = (KindRef, ObjectKey);

/// Returns the MachineSet or MachinePool that owns a Machine.
pub(super) fn owner_of(machine: &Machine) -> Option<(ScalableKind, ObjectKey)> {
    let (kind, name) = machine.owner.as_ref()?;
    Some((*kind, ObjectKey { namespace: machine.meta.key.namespace.clone(), name: name.clone() }))
}

/// Returns the group of an object: the MachineDeployment of a MachineSet that has one, else the object itself.
pub(super) fn group_of(object: &ScalableResource) -> GroupId {
    match &object.deployment {
        None => GroupId::of(object.kind, &object.meta),
        Some(deployment) => GroupId::new(
            ScalableKind::MachineDeployment,
            ObjectKey { namespace: object.meta.key.namespace.clone(), name: deployment.clone() },
        ),
    }
}

/// Returns the Cluster of an object, in the object's namespace.
pub(super) fn cluster_key(object: &ScalableResource) -> ObjectKey {
    ObjectKey { namespace: object.meta.key.namespace.clone(), name: object.cluster_name.clone() }
}

/// Returns the infrastructure template of an object, in the object's namespace.
pub(super) fn template_key(object: &ScalableResource) -> Option<TemplateKey> {
    let reference = object.infrastructure.as_ref()?;
    let key = ObjectKey { namespace: object.meta.key.namespace.clone(), name: reference.name.clone() };
    Some((KindRef::from(reference), key))
}
