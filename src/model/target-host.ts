/** A host name, or an address, as one can ask for it: URLs that SQL published may have others, which never resolve. */
export const TARGET_HOST = /^[A-Za-z0-9._:[\]-]{1,255}$/;
