//! The flag of gRPC's Unix socket, and its meaning for its address.

use super::ServeArgs;
use crate::cli::usage::{UsageError, given, wrong};
use app::Config;
use service::listen::{GrpcAddress, PRIVATE_SOCKET};

const MODE: &str = "--listen-socket-mode";

const OTHERS_MAY_WRITE: u32 = 0o002;

/// Returns the mode of the socket at `listen`. Without a socket, the flag is an error.
pub(super) fn mode(args: &ServeArgs, listen: &GrpcAddress, warnings: &mut Vec<String>) -> Result<u32, UsageError> {
    let mode = given(args.listen_socket_mode.as_deref());
    if let (GrpcAddress::Tcp(_), Some(_)) = (listen, mode) {
        let why = "it is about the file of a Unix socket, such as unix:///run/capi-autoscaler-provider/grpc.sock";
        return Err(UsageError::Needs { given: MODE, other: Config::LISTEN_FLAG, why });
    }
    let Some(text) = mode else { return Ok(PRIVATE_SOCKET) };
    let mode = octal(text).ok_or_else(|| wrong(MODE, text, "it has to be octal digits up to 0777, such as 0660"))?;
    if mode & OTHERS_MAY_WRITE != 0 {
        warnings.push(format!(
            "gRPC is served on {listen} with mode {mode:04o}: every user who reaches that path can scale and delete Machines; \
             leave others out, such as by --listen-socket-mode=0660"
        ));
    }
    Ok(mode)
}

fn octal(text: &str) -> Option<u32> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777)
}

#[cfg(test)]
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
}
