//! Which addresses checks may connect to. The rule applies to the very address that is connected to, not to a name that may
//! resolve differently a moment later.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::lookup_host;

/// Whether checks may connect to link-local addresses and to the metadata services of clouds, which hand out the machine's
/// credentials to any process on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkLocal {
    /// Such connections are refused.
    #[default]
    Denied,
    /// Such connections are made.
    Allowed,
}

fn is_near(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(four) => four.is_link_local() || is_metadata_four(four),
        IpAddr::V6(six) => six.is_unicast_link_local() || is_metadata_six(six),
    }
}

/// Metadata services outside the link-local range.
fn is_metadata_four(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, 192])
}

/// Metadata services outside the link-local range. Amazon has several in its block.
fn is_metadata_six(address: Ipv6Addr) -> bool {
    matches!(
        address.segments(),
        [0xfd00, 0xec2, ..]
            | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
            | [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]
            | [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]
            | [0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1]
            | [0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200]
    )
}

/// The IPv4 address inside an IPv6 address that only carries one: mapped, compatible, translated or tunnelled.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let four = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let translated = match six.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x2002, high, low, ..] => Some(four(high, low)),
        _ => six.to_ipv4(),
    };
    translated.map_or(address, IpAddr::V4)
}

impl LinkLocal {
    /// Refuses an address that must not be connected to.
    pub(super) fn check(self, address: IpAddr) -> Result<(), String> {
        match self == LinkLocal::Denied && is_near(address) {
            true => Err(format!("needs --allow-link-local: {address} is link-local or a metadata service")),
            false => Ok(()),
        }
    }

    /// The addresses of a host that may be connected to.
    pub(super) async fn addresses(self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        let found: Vec<SocketAddr> = lookup_host((host, port)).await.map_err(|e| e.to_string())?.collect();
        self.pick(found)
    }

    fn pick(self, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
        let mut refused = "it has no address".to_owned();
        let mut may = |address: &SocketAddr| match self.check(address.ip()) {
            Ok(()) => true,
            Err(why) => {
                refused = why;
                false
            }
        };
        let allowed: Vec<SocketAddr> = found.into_iter().filter(|address| may(address)).collect();
        if allowed.is_empty() { Err(refused) } else { Ok(allowed) }
    }
}

/// For an HTTP client. The client asks this only about names; it connects to plain addresses without asking.
impl Resolve for LinkLocal {
    fn resolve(&self, name: Name) -> Resolving {
        let link_local = *self;
        Box::pin(async move {
            let found = link_local.addresses(name.as_str(), 0).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn link_local_addresses_are_known_in_every_dress() {
        for near in [
            "169.254.169.254",
            "169.254.0.1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "::ffff:100.100.100.200",
            "fd00:ec2::23",
            "168.63.129.16",
            "192.0.0.192",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "::ffff:0:169.254.169.254",
            "::ffff:0:100.100.100.200",
            "fd00:ec2::1",
            "fd00:ec2:ffff:ffff::1",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "fd00:a9fe:a9fe::1",
            "fd00:100::100:200",
        ] {
            assert!(LinkLocal::Denied.check(address(near)).is_err(), "{near}");
            assert_eq!(LinkLocal::Allowed.check(address(near)), Ok(()), "{near}");
        }
        for far in [
            "127.0.0.1",
            "::1",
            "10.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "fec0::1",
            "fd00:ec1::254",
            "fd00:ec3::",
            "fd00:42::43",
            "::ffff:0:127.0.0.1",
            "2001:db8::1",
        ] {
            assert_eq!(LinkLocal::Denied.check(address(far)), Ok(()), "{far}");
        }
    }

    /// A name may have several addresses; only the allowed ones are connected to.
    #[test]
    fn only_what_is_allowed_is_left_of_a_name() {
        let found =
            |all: &[&str]| all.iter().map(|one| SocketAddr::new(address(one), 80)).collect::<Vec<_>>();
        let both = found(&["169.254.169.254", "127.0.0.1"]);
        assert_eq!(LinkLocal::Denied.pick(both.clone()), Ok(found(&["127.0.0.1"])));
        assert_eq!(LinkLocal::Allowed.pick(both.clone()), Ok(both));
        let why = LinkLocal::Denied.pick(found(&["169.254.169.254"])).expect_err("none is left");
        assert!(why.contains("169.254.169.254 is link-local") && why.contains("--allow-link-local"), "{why}");
        assert_eq!(LinkLocal::Denied.pick(Vec::new()), Err("it has no address".to_owned()));
    }
}
