//! Which reasons and messages of a failed or unready infrastructure mean that the cloud has run out of capacity or
//! the account out of quota: InstanceErrorClass 1 (kubernetes/autoscaler#5417).
//!
//! A Machine that is named as exhausted makes Cluster Autoscaler delete it and back its group off, so ordinary
//! provisioning messages must never match.

/// Cluster API's own failureReason for it, whatever the provider.
pub const INSUFFICIENT_RESOURCES: &str = "InsufficientResources";

/// The codes: each is looked for as a whole word, letter for letter. A word is made of letters, digits and `_`, so
/// `LimitExceeded` isn't found in AWS's `RequestLimitExceeded`, which is throttling.
pub const CODES: [&str; 28] = [
    INSUFFICIENT_RESOURCES,
    // AWS
    "InsufficientInstanceCapacity",
    "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity",
    "InsufficientCapacityOnHost",
    "InsufficientFreeAddressesInSubnet",
    "InstanceLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "VolumeLimitExceeded",
    // Azure
    "AllocationFailed",
    "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest",
    "QuotaExceeded",
    "SkuNotAvailable",
    "ZonalAllocationFailed",
    // GCP
    "QUOTA_EXCEEDED",
    "RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    // Hetzner
    "resource_limit_exceeded",
    "resource_unavailable",
    // OCI
    "LimitExceeded",
    "OutOfCapacity",
    "OutOfHostCapacity",
    // OpenStack
    "NoValidHost",
    "OverQuota",
    // vSphere
    "InsufficientResourcesFault",
];

/// The phrases: each is looked for between word ends, in upper or lower case.
pub const PHRASES: [&str; 10] = [
    // OpenStack
    "no valid host was found",
    "quota exceeded",
    // OCI
    "out of host capacity",
    // AWS, and others that say it in words
    "insufficient capacity",
    "not enough capacity",
    // GCP
    "does not have enough resources available",
    // Azure, a quota of cores
    "exceeding approved",
    // vSphere
    "insufficient resources",
    "parent resource pool are insufficient",
    // Metal3
    "no available host found",
];

/// Phrases of throttled API calls: a message with one of them is no lack of capacity, whatever else it says. GCP calls
/// both a quota.
pub const THROTTLING: [&str; 6] =
    ["ratelimitexceeded", "rate limit", "per minute", "per second", "throttling", "too many requests"];

/// Whether a reason or message says that capacity or quota has run out.
#[must_use]
pub fn is_exhausted(text: &str) -> bool {
    if !CODES.iter().any(|code| has_words(text, code, false))
        && !PHRASES.iter().any(|phrase| has_words(text, phrase, true))
    {
        return false;
    }
    !THROTTLING.iter().any(|phrase| has_words(text, phrase, true))
}

/// Whether `words` stand in `text` and neither end is within a longer word.
fn has_words(text: &str, words: &str, any_case: bool) -> bool {
    let is_word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
    let (text, words) = (text.as_bytes(), words.as_bytes());
    text.windows(words.len()).enumerate().any(|(start, window)| {
        let same = if any_case { window.eq_ignore_ascii_case(words) } else { window == words };
        same && !start.checked_sub(1).and_then(|before| text.get(before)).is_some_and(is_word)
            && !text.get(start + words.len()).is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::aws(
        "InstanceProvisionFailed: failed to run instance: InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity"
    )]
    #[case::aws_vcpu("VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 32")]
    #[case::aws_subnet("InsufficientFreeAddressesInSubnet: There are not enough free addresses in subnet subnet-1")]
    #[case::aws_spot("MaxSpotInstanceCountExceeded: Max spot instance count exceeded")]
    #[case::azure("failed to reconcile AzureMachine: ERROR CODE: SkuNotAvailable")]
    #[case::azure_zone("{\"code\":\"ZonalAllocationFailed\"}")]
    #[case::azure_quota("OperationNotAllowed: results in exceeding approved Total Regional Cores quota")]
    #[case::gcp("error: ZONE_RESOURCE_POOL_EXHAUSTED")]
    #[case::gcp_in_words(
        "The zone 'projects/p/zones/z' does not have enough resources available to fulfill the request"
    )]
    #[case::gcp_quota("QUOTA_EXCEEDED: Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1")]
    #[case::openstack("No valid host was found. There are not enough hosts available.")]
    #[case::openstack_quota("Quota exceeded for cores: Requested 8, but already used 36 of 40 cores")]
    #[case::hetzner("failed to create server: error during placement (resource_unavailable)")]
    #[case::hetzner_limit("server limit reached (resource_limit_exceeded)")]
    #[case::oci("Out of host capacity.")]
    #[case::oci_limit("Error returned: LimitExceeded. The following service limits were exceeded")]
    #[case::vsphere("Insufficient resources to satisfy configured failover level")]
    #[case::cluster_api("InsufficientResources")]
    fn capacity_and_quota_are_found(#[case] text: &str) {
        assert!(is_exhausted(text));
    }

    #[rstest]
    #[case::empty("")]
    #[case::waiting("WaitingForInfrastructure")]
    #[case::in_memory("* VMProvisioned: WaitingForStartupTimeout\n* NodeProvisioned: WaitingForVMProvisioned")]
    #[case::provisioning("InstanceNotReady: instance is pending, has 4 CPUs and enough capacity")]
    #[case::bootstrap("WaitingForBootstrapData")]
    #[case::unauthorized("UnauthorizedOperation: you are not authorized to perform this operation")]
    #[case::aws_throttling("RequestLimitExceeded: Request limit exceeded.")]
    #[case::gcp_throttling(
        "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute', rateLimitExceeded"
    )]
    #[case::a_longer_word("ReservedQuotaExceededWarning")]
    #[case::another_case_of_a_code("quotaexceeded")]
    #[case::a_quota_that_is_fine("checking quota: 3 of 40 cores used")]
    fn ordinary_messages_are_not(#[case] text: &str) {
        assert!(!is_exhausted(text));
    }
}
