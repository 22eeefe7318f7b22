// Google Cloud Storage for tests: one bucket of fake-gcs-server, in a folder.
//
// Clients made of the Rust crate object_store, such as obstore, write and delete by the XML API. fake-gcs-server reads and
// lists by it, and writes by the JSON API alone. So this handler answers the XML requests that are missing, and does what
// they ask by the server's own JSON requests: generations, conditions, objects and lists are the server's.
package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

type gateway struct {
	address string
	bucket  string
	objects http.Handler
	mutex   sync.Mutex
	uploads map[string]map[int][]byte // in parts, by id and number; they are lost with the process
	count   int
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != g.bucket {
		refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		r.Host = g.address // a proxy may have another one
		g.objects.ServeHTTP(w, r)
	case r.Method == http.MethodPost && query.Has("uploads"):
		g.begin(w, object)
	case query.Has("uploadId"):
		g.goOn(w, r, object, query)
	case r.Method == http.MethodPut:
		g.put(w, object, r.Body, r.Header.Get("x-goog-if-generation-match"))
	case r.Method == http.MethodDelete:
		g.remove(w, object)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func (g *gateway) put(w http.ResponseWriter, object string, content io.Reader, condition string) string {
	query := url.Values{"uploadType": {"media"}, "name": {object}}
	if condition != "" {
		query.Set("ifGenerationMatch", condition)
	}
	done := g.ask("POST", "/upload/storage/v1/b/"+g.bucket+"/o?"+query.Encode(), content)
	switch done.Code {
	case http.StatusOK:
	case http.StatusPreconditionFailed:
		refuse(w, done.Code, "PreconditionFailed")
		return ""
	default:
		refuse(w, done.Code, "InternalError")
		return ""
	}
	var told struct{ Etag, Generation string }
	if err := json.Unmarshal(done.Body.Bytes(), &told); err != nil {
		refuse(w, http.StatusInternalServerError, "InternalError")
		return ""
	}
	w.Header().Set("ETag", quoted(told.Etag))
	w.Header().Set("x-goog-generation", told.Generation)
	return told.Etag
}

func (g *gateway) remove(w http.ResponseWriter, object string) {
	done := g.ask("DELETE", "/storage/v1/b/"+g.bucket+"/o/"+url.PathEscape(object), nil)
	switch done.Code {
	case http.StatusOK, http.StatusNoContent:
		w.WriteHeader(http.StatusNoContent)
	case http.StatusNotFound:
		refuse(w, done.Code, "NoSuchKey")
	default:
		refuse(w, done.Code, "InternalError")
	}
}

func (g *gateway) begin(w http.ResponseWriter, object string) {
	g.mutex.Lock()
	g.count++
	id := strconv.Itoa(g.count)
	g.uploads[id] = map[int][]byte{}
	g.mutex.Unlock()
	tell(w, struct {
		XMLName               xml.Name `xml:"InitiateMultipartUploadResult"`
		Bucket, Key, UploadId string
	}{Bucket: g.bucket, Key: object, UploadId: id})
}

func (g *gateway) goOn(w http.ResponseWriter, r *http.Request, object string, query url.Values) {
	id := query.Get("uploadId")
	content, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "IncompleteBody")
		return
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	parts, found := g.uploads[id]
	if !found {
		refuse(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		number, err := strconv.Atoi(query.Get("partNumber"))
		if err != nil {
			refuse(w, http.StatusBadRequest, "InvalidArgument")
			return
		}
		parts[number] = content
		w.Header().Set("ETag", quoted(fmt.Sprintf("%s-%d", id, number)))
	case http.MethodPost:
		var wanted struct {
			Part []struct{ PartNumber int }
		}
		if err := xml.Unmarshal(content, &wanted); err != nil {
			refuse(w, http.StatusBadRequest, "MalformedCompleteMultipartUpload")
			return
		}
		var whole bytes.Buffer
		for _, it := range wanted.Part {
			part, found := parts[it.PartNumber]
			if !found {
				refuse(w, http.StatusBadRequest, "InvalidPart")
				return
			}
			whole.Write(part)
		}
		if etag := g.put(w, object, &whole, ""); etag != "" {
			delete(g.uploads, id)
			tell(w, struct {
				XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
				Bucket, Key, ETag string
			}{Bucket: g.bucket, Key: object, ETag: quoted(etag)})
		}
	case http.MethodDelete:
		delete(g.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (g *gateway) ask(method, target string, body io.Reader) *httptest.ResponseRecorder {
	done := httptest.NewRecorder()
	g.objects.ServeHTTP(done, httptest.NewRequest(method, target, body))
	return done
}

func quoted(etag string) string {
	return `"` + strings.Trim(etag, `"`) + `"`
}

func tell(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/xml")
	if err := xml.NewEncoder(w).Encode(answer); err != nil {
		log.Print(err)
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<?xml version='1.0' encoding='UTF-8'?><Error><Code>%s</Code></Error>", code)
}

func main() {
	address := flag.String("address", "", "host:port")
	bucket := flag.String("bucket", "", "its name; it is made if it is not there")
	folder := flag.String("folder", "", "for objects")
	flag.Parse()
	if err := os.MkdirAll(*folder, 0o700); err != nil {
		log.Fatal(err)
	}
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener:  true,
		StorageRoot: *folder,
		PublicHost:  *address,
		Scheme:      "http",
		Writer:      io.Discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: *bucket})
	handler := &gateway{
		address: *address,
		bucket:  *bucket,
		objects: server.HTTPHandler(),
		uploads: map[string]map[int][]byte{},
	}
	log.Fatal(http.ListenAndServe(*address, handler))
}
