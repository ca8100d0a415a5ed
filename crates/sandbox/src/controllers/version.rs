//! Versions of Cluster API and their differences, as far as they matter to a client that changes sizes and deletes
//! Machines.

/// A version of Cluster API. Read in its sources (tags v1.8.12, v1.9.11, v1.10 to v1.14):
///
/// | what | 1.8 | 1.9, 1.10 | 1.11 | 1.14 |
/// |---|---|---|---|---|
/// | a MachineDeployment writes its newest MachineSet | labels, annotations and the size it *sees* by server-side apply, then the new size by a merge patch | as 1.8 | as 1.8 | all in one apply; in two writes only with `spec.paused` |
/// | older MachineSets get its annotations | no | no | no | yes |
/// | order in which a MachineSet gives up Machines, no policy or `Random` | marked and unhealthy ones alike, by name | marked before unhealthy | as 1.10 | as 1.10, then those being updated in place |
/// | after creates and deletes the MachineSet controller | waits up to 10 s for each until its cache shows it, before it writes the status; not after an error | as 1.8 | as 1.8 | writes the status at once, and puts the next reconcile off until its cache has all it has written |
/// | a Machine can't be deleted | the others are deleted, then the reconcile fails | as 1.8 | as 1.8 | as 1.8 |
/// | a Machine can't be created | the others are created, then the reconcile fails | as 1.8 | as 1.8 | the first error ends it |
/// | a Machine can't be updated from the template | the reconcile ends | the size is seen to all the same | as 1.10 | as 1.10 |
/// | a MachineSet's `status.observedGeneration` after an error of creates and deletes | moves | moves | stays | stays |
/// | reconciles of one object | as they come | as they come | as they come | once a second at most |
///
/// With `OnDelete` all versions here do what 1.12 and later do. Up to 1.11 a Machine leaves the size of an old MachineSet as
/// soon as it is being deleted, and a smaller size takes from the largest old MachineSet first.
///
/// In all of them patches carry no resource version, deletes have no precondition, and a MachineSet treats it as an
/// error if a Machine that it deletes is already gone.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum CapiVersion {
    /// 1.8
    V1_8,
    /// 1.9 and 1.10
    V1_10,
    /// 1.11
    V1_11,
    /// 1.14
    #[default]
    V1_14,
}

impl CapiVersion {
    /// All versions.
    pub const ALL: [Self; 4] = [Self::V1_8, Self::V1_10, Self::V1_11, Self::V1_14];

    pub(crate) fn marked_ties_with_unhealthy(self) -> bool {
        self == Self::V1_8
    }

    pub(crate) fn sizes_machine_set_apart(self) -> bool {
        self <= Self::V1_11
    }

    pub(crate) fn annotates_older_sets(self) -> bool {
        self >= Self::V1_14
    }

    pub(crate) fn waits_for_cache_in_reconcile(self) -> bool {
        self <= Self::V1_11
    }

    pub(crate) fn ends_with_failed_create(self) -> bool {
        self >= Self::V1_14
    }

    pub(crate) fn ends_with_failed_sync(self) -> bool {
        self == Self::V1_8
    }

    pub(crate) fn observes_despite_errors(self) -> bool {
        self <= Self::V1_10
    }

    pub(crate) fn limits_rate(self) -> bool {
        self >= Self::V1_14
    }
}
