//! The claim about an instance's Node that a DeleteNodes makes by the way in which it names the instance.

use super::PlaceholderRef;

/// The annotation of a Node that Cluster Autoscaler makes up for an instance: the reason for which it does so.
const FAKE_NODE_REASON: &str = "k8s.io/cluster-autoscaler/fake-node-reason";

/// The reasons which say that the instance has no Node. An instance of a group that is deleted whole has an empty one,
/// and may have a Node.
const WITHOUT_NODE: [&str; 2] = ["unregistered", "create-error"];

/// The claim of a DeleteNodes about the Node of an instance that it names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeClaim {
    /// None: it names a Node, or all instances of a group.
    Nothing,
    /// Its Node isn't there. It may have been: the instance has a providerID.
    Absent,
    /// No Node has ever joined: it is named by a placeholder.
    NeverJoined,
}

impl NodeClaim {
    /// Returns the claim by the id and the annotations of a Node in the request.
    pub fn of<'a>(id: &str, annotation: impl Fn(&str) -> Option<&'a str>) -> Self {
        if PlaceholderRef::parse(id).is_some() {
            Self::NeverJoined
        } else if annotation(FAKE_NODE_REASON).is_some_and(|reason| WITHOUT_NODE.contains(&reason)) {
            Self::Absent
        } else {
            Self::Nothing
        }
    }

    /// Returns true if the claim is wrong, so that the delete is to be refused: it would take a Node with its pods,
    /// without a drain. Cluster Autoscaler takes a Node for absent whose providerID has another form than its
    /// instance's, or that has joined since. Don't ask about a Machine that is being deleted.
    ///
    /// `has_node_ref` is true if the Machine has a nodeRef, which stays when its Node has gone, and `has_node` if the
    /// workload cluster has its Node.
    pub fn is_wrong(self, has_node_ref: bool, has_node: bool) -> bool {
        match self {
            Self::Nothing => false,
            Self::Absent => has_node,
            Self::NeverJoined => has_node_ref || has_node,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const AZURE: &str = "azure:///subscriptions/s/resourceGroups/g/x/virtualMachines/md-0-x";

    #[rstest]
    #[case::a_node(AZURE, None, NodeClaim::Nothing)]
    #[case::of_a_group_that_goes_whole(AZURE, Some(""), NodeClaim::Nothing)]
    #[case::another_reason(AZURE, Some("template"), NodeClaim::Nothing)]
    #[case::unregistered(AZURE, Some("unregistered"), NodeClaim::Absent)]
    #[case::with_an_error(AZURE, Some("create-error"), NodeClaim::Absent)]
    #[case::pending("pending-machine-team-a_md-0-1-x", Some("unregistered"), NodeClaim::NeverJoined)]
    #[case::pending_without_a_reason("new-pending-machine-team-a_md-0-1-x", None, NodeClaim::NeverJoined)]
    #[case::a_replica("replica-MachineDeployment-team-a_md-0-0", Some(""), NodeClaim::NeverJoined)]
    fn a_request_claims(#[case] id: &str, #[case] reason: Option<&str>, #[case] expected: NodeClaim) {
        let annotation = |key: &str| reason.filter(|_| key == "k8s.io/cluster-autoscaler/fake-node-reason");
        assert_eq!(NodeClaim::of(id, annotation), expected);
    }

    #[rstest]
    #[case::the_node_goes(NodeClaim::Nothing, true, true, false)]
    #[case::it_never_came(NodeClaim::NeverJoined, false, false, false)]
    #[case::it_has_joined_since(NodeClaim::NeverJoined, true, true, true)]
    #[case::its_node_ref_lags(NodeClaim::NeverJoined, false, true, true)]
    #[case::its_node_is_not_known(NodeClaim::NeverJoined, true, false, true)]
    #[case::its_node_has_gone(NodeClaim::Absent, true, false, false)]
    #[case::its_node_has_another_form_of_the_id(NodeClaim::Absent, true, true, true)]
    #[case::the_same_without_a_node_ref(NodeClaim::Absent, false, true, true)]
    fn a_claim_is_wrong_while_a_node_is_there(
        #[case] claim: NodeClaim,
        #[case] has_node_ref: bool,
        #[case] has_node: bool,
        #[case] expected: bool,
    ) {
        assert_eq!(claim.is_wrong(has_node_ref, has_node), expected);
    }
}
