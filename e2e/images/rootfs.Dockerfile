# A file system as an image.
FROM scratch
ADD rootfs.tar /
