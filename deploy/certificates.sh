#!/bin/sh
# Makes what the processes of a cluster need to encrypt what they say to each other:
#
#     sh deploy/certificates.sh tls
#
# gives tls/ca.crt, tls/tls.crt and tls/tls.key, one certificate for all of them, which is good for
# a year. tls/ca.key signs more: keep it where no process of the cluster can read it. Run again with
# the same folder, the CA stays and the certificate is new; processes take it up by themselves.
set -eu
folder=${1:?name a folder for the certificates}
umask 077
mkdir -p "$folder"
cd "$folder"
new="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
if [ ! -e ca.key ]; then
    openssl req -x509 $new -days 3650 -subj "/CN=tidegate CA" -keyout ca.key -out ca.crt
fi
# The name is that of --tls-name. Clients and servers show the same one.
openssl req $new -subj "/CN=tidegate" -keyout tls.key.new -out tls.csr \
    -addext "subjectAltName=DNS:tidegate" -addext "extendedKeyUsage=serverAuth,clientAuth"
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 \
    -copy_extensions copy -out tls.crt.new
mv tls.key.new tls.key
mv tls.crt.new tls.crt
rm -f tls.csr
