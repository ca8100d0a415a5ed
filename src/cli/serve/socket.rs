//! The flags of gRPC's Unix socket, and their meaning for its address.

use super::{ServeArgs, flags::LISTEN};
use crate::cli::{
    UsageError,
    usage::{Flag, given},
};
use server::{GrpcAddress, SocketRights};

const MODE: Flag = Flag { name: "--listen-socket-mode", variable: "CAPI_AUTOSCALER_LISTEN_SOCKET_MODE", default: "" };
const OWNER: Flag =
    Flag { name: "--listen-socket-owner", variable: "CAPI_AUTOSCALER_LISTEN_SOCKET_OWNER", default: "" };
/// All of these flags: a test compares their names with clap's.
#[cfg(test)]
pub(super) const FLAGS: [Flag; 2] = [MODE, OWNER];

const OTHERS_MAY_WRITE: u32 = 0o002;

/// Returns the mode and owner of the socket at `listen`. Without a socket, the flags are an error.
pub(super) fn rights(
    args: &ServeArgs,
    listen: &GrpcAddress,
    warnings: &mut Vec<String>,
) -> Result<SocketRights, UsageError> {
    let (mode, owner) = (given(args.listen_socket_mode.as_deref()), given(args.listen_socket_owner.as_deref()));
    if let GrpcAddress::Tcp(_) = listen {
        let given = [(mode, &MODE), (owner, &OWNER)].into_iter().find_map(|(value, flag)| value.map(|_| flag));
        let why = "it is about the file of a Unix socket, such as unix:///run/capi-autoscaler-provider/grpc.sock";
        return match given {
            Some(flag) => {
                Err(UsageError::Needs { given: flag.name, other: LISTEN.name, variable: LISTEN.variable, why })
            }
            None => Ok(SocketRights::default()),
        };
    }
    let mut rights = SocketRights::default();
    if let Some(text) = mode {
        rights.mode =
            octal(text).ok_or_else(|| MODE.wrong(text, &"it has to be octal digits up to 0777, such as 0660"))?;
    }
    if let Some(text) = owner {
        let wrong = || OWNER.wrong(text, &"it has to be ids in digits, such as 65532, 65532:65532 or :65532");
        rights.owner = ids(text).ok_or_else(wrong)?;
    }
    if rights.mode & OTHERS_MAY_WRITE != 0 {
        warnings.push(format!(
            "gRPC is served on {listen} with mode {:04o}: every user who reaches that path can scale and delete Machines; \
             leave others out, such as by --listen-socket-mode=0660",
            rights.mode
        ));
    }
    Ok(rights)
}

fn octal(text: &str) -> Option<u32> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777)
}

fn ids(text: &str) -> Option<(Option<u32>, Option<u32>)> {
    // The highest id means no change to the operating system.
    let id = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX && text.bytes().all(|it| it.is_ascii_digit()));
    match text.split_once(':') {
        None => Some((Some(id(text)?), None)),
        Some(("", group)) => Some((None, Some(id(group)?))),
        Some((user, group)) => Some((Some(id(user)?), Some(id(group)?))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0600", Some(0o600))]
    #[case("660", Some(0o660))]
    #[case("0777", Some(0o777))]
    #[case("1777", None)]
    #[case("0888", None)]
    #[case("+600", None)]
    #[case("6", None)]
    #[case("rw-------", None)]
    fn a_mode_is_octal(#[case] text: &str, #[case] mode: Option<u32>) {
        assert_eq!(octal(text), mode);
    }

    #[rstest]
    #[case("65532", Some((Some(65_532), None)))]
    #[case("0:1000", Some((Some(0), Some(1_000))))]
    #[case(":1000", Some((None, Some(1_000))))]
    #[case(":", None)]
    #[case("1000:", None)]
    #[case("+1", None)]
    #[case("nobody", None)]
    #[case("4294967295", None)]
    fn an_owner_is_ids(#[case] text: &str, #[case] owner: Option<(Option<u32>, Option<u32>)>) {
        assert_eq!(ids(text), owner);
    }
}
