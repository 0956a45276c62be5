//! Opens the server's listener: an address type and a port in, a bound socket out.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use super::flags::AddressType;

/// Listens on all addresses of a type.
pub(super) fn listen(address_type: AddressType, port: u16) -> io::Result<TcpListener> {
    match address_type {
        AddressType::Ipv4 => bind(Family::V4, port),
        AddressType::Ipv6 => bind(Family::V6, port),
        AddressType::Ipv4Ipv6 => match bind(Family::Both, port) {
            // No IPv6 on this machine.
            Err(error) if no_such_family(&error) => bind(Family::V4, port),
            result => result,
        },
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
    Both,
}

fn bind(family: Family, port: u16) -> io::Result<TcpListener> {
    let (domain, address): (Domain, SocketAddr) = match family {
        Family::V4 => (Domain::IPV4, (Ipv4Addr::UNSPECIFIED, port).into()),
        Family::V6 | Family::Both => (Domain::IPV6, (Ipv6Addr::UNSPECIFIED, port).into()),
    };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(family == Family::V6)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

fn no_such_family(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(97) // EAFNOSUPPORT, which has no kind of its own
}
